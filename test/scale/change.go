package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// maxChanges is how many LiveStashClusters get another image.
	maxChanges = 10
	// changeLimit is the longest that one is waited for.
	changeLimit = 30 * time.Second
	// changePause lies between two, so that they meet the operator at any moment of what it does all the time.
	changePause  = 700 * time.Millisecond
	changedImage = "ghcr.io/acme/shop:1.4.3"
)

// change gives LiveStashClusters another image, one after the other, and measures for each how long the operator takes to
// write it into the StatefulSet. What becomes of the pods then is not waited for.
func (b *bench) change(ctx context.Context) ([]time.Duration, error) {
	count := min(maxChanges, b.clusters)
	b.step("giving %d LiveStashClusters another image", count)
	var took []time.Duration
	for i := range count {
		one, err := b.changeOne(ctx, clusterName(i*b.clusters/count))
		if err != nil {
			return nil, fmt.Errorf("change a LiveStashCluster: %w", err)
		}
		took = append(took, one)
		if err := sleepUntil(ctx, time.Now().Add(changePause)); err != nil {
			return nil, err
		}
	}
	b.step("the operator wrote the StatefulSets after %s", took)
	return took, nil
}

// changeOne is changeLimit for an operator that takes longer.
func (b *bench) changeOne(ctx context.Context, name string) (time.Duration, error) {
	events, err := b.client.AppsV1().StatefulSets(clustersNamespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	started := time.Now()
	if err := b.setImage(ctx, name, changedImage); err != nil {
		return 0, err
	}
	limited, stop := context.WithTimeout(ctx, changeLimit)
	defer stop()
	err = untilChanged(limited, events, changedImage)
	if limited.Err() != nil && ctx.Err() == nil {
		b.step("StatefulSet %s is not changed after %s", name, changeLimit)
		return changeLimit, nil
	}
	return time.Since(started).Round(time.Millisecond), err
}

// untilChanged waits until a StatefulSet of the watch has that image.
func untilChanged(ctx context.Context, events watch.Interface, image string) error {
	for {
		select {
		case event, open := <-events.ResultChan():
			set, err := changedTo(image, event, open)
			if set != "" || err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setImage gives a LiveStashCluster another image. No client of ours knows the type, and none is needed to patch it.
func (b *bench) setImage(ctx context.Context, name, image string) error {
	return b.client.CoreV1().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis/livestash.dev/v1alpha1/namespaces", clustersNamespace, "livestashclusters", name).
		Body([]byte(`{"spec":{"image":"` + image + `"}}`)).Do(ctx).Error()
}

// changedTo is the name of the StatefulSet in the event, if it has that image; else it is empty.
func changedTo(image string, event watch.Event, open bool) (string, error) {
	if !open {
		return "", errors.New("the watch of StatefulSets ended")
	}
	if event.Type == watch.Error {
		return "", apierrors.FromObject(event.Object)
	}
	set, ok := event.Object.(*appsv1.StatefulSet)
	if !ok {
		return "", nil
	}
	for _, container := range set.Spec.Template.Spec.Containers {
		if container.Image == image {
			return set.Name, nil
		}
	}
	return "", nil
}
