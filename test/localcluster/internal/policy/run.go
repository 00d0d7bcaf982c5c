package policy

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// together is for how long changes are collected before the rules are written.
	together = 50 * time.Millisecond
	// pause is the time before another try when the rules could not be written.
	pause = time.Second
)

// Run keeps the rules of the network namespace that it runs in as the API server's policies want them, until the context
// ends. The pods of the node have addresses in the range. nft is the path of that program.
func Run(ctx context.Context, kubeconfig, nft string, ofNode netip.Prefix) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return keep(ctx, client, ofNode, func(rules string) error { return write(ctx, nft, rules) })
}

// keep writes the rules at first and whenever they change.
func keep(ctx context.Context, client kubernetes.Interface, ofNode netip.Prefix, write func(rules string) error) error {
	watched := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutManagedFields))
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		watched.Core().V1().Pods().Informer(),
		watched.Core().V1().Namespaces().Informer(),
		watched.Networking().V1().NetworkPolicies().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	watched.Start(ctx.Done())
	watched.WaitForCacheSync(ctx.Done())
	notify()
	written := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		time.Sleep(together)
		rules, err := rulesOf(watched, ofNode)
		if err == nil && rules == written {
			continue
		}
		if err == nil {
			err = write(rules)
		}
		if err != nil {
			log.Printf("the rules stay as they were: %v", err)
			time.AfterFunc(pause, notify)
			continue
		}
		written = rules
	}
}

func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// rulesOf reads what is known by now.
func rulesOf(watched informers.SharedInformerFactory, ofNode netip.Prefix) (string, error) {
	world := World{Namespaces: map[string]labels.Set{}}
	namespaces, err := watched.Core().V1().Namespaces().Lister().List(labels.Everything())
	if err != nil {
		return "", err
	}
	for _, namespace := range namespaces {
		world.Namespaces[namespace.Name] = namespace.Labels
	}
	var pods []*corev1.Pod
	if pods, err = watched.Core().V1().Pods().Lister().List(labels.Everything()); err != nil {
		return "", err
	}
	for _, pod := range pods {
		if known, ok := FromAPI(pod); ok {
			world.Pods = append(world.Pods, known)
		}
	}
	if world.Policies, err = watched.Networking().V1().NetworkPolicies().Lister().List(labels.Everything()); err != nil {
		return "", err
	}
	world.sort()
	guards, err := Compile(world, ofNode)
	if err != nil {
		return "", err
	}
	return Render(guards, ofNode), nil
}

func write(ctx context.Context, nft, rules string) error {
	command := exec.CommandContext(ctx, nft, "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output)
	}
	return nil
}
