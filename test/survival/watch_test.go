package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

// What a watch sees is written as one word for each change: the pod's number, a letter for its life, and what it is: "0a+" is
// ready, "0a-" is not, "0a~" terminates, "0a." has ended, "0a!" is about to be taken by the event. "3?" is three asked for, and
// "2=" a status.replicas of two.
func TestWatch(t *testing.T) {
	const three = "3? 0a+ 1a+ 2a+ "
	for name, c := range map[string]struct {
		seen, remark, faults string
	}{
		"nothing happens":                       {seen: three},
		"a rollout takes one pod at a time":     {seen: three + "2a~ 2a. 2b- 2b+ 1a~ 1a. 1b- 1b+ 0a~ 0a. 0b- 0b+", remark: "1 away"},
		"it does not wait until one is ready":   {seen: three + "2a~ 2a. 2b- 1a~", remark: "2 away", faults: "took shop-1 while shop-2 was not ready"},
		"nor until one is back":                 {seen: three + "2a~ 2a. 1a~", remark: "2 away", faults: "took shop-1 while shop-2 was gone"},
		"the event takes a pod":                 {seen: three + "0a! 0a~ 0a. 0b- 0b+"},
		"and the operator another one at once":  {seen: three + "0a! 0a~ 2a~", remark: "1 away", faults: "took shop-2 while shop-0 was terminating"},
		"or only after it":                      {seen: three + "0a! 0a~ 0a. 0b- 0b+ 2a~ 2a. 2b- 2b+", remark: "1 away"},
		"the event takes a second pod":          {seen: three + "2a~ 0a! 0a~", remark: "1 away"},
		"one that fails later is not taken":     {seen: three + "2a~ 2a. 2b- 2b+ 1a~ 1a. 1b- 2b-", remark: "1 away"},
		"a broken pod goes at any time":         {seen: three + "2a- 1a~ 1a. 1b- 2a~", remark: "1 away", faults: "took shop-1 while shop-2 was not ready"},
		"a broken pod goes while one is away":   {seen: three + "2a- 0a! 0a~ 2a~ 2a."},
		"a pod that nobody asks for any longer": {seen: three + "2? 2a~ 2a. 1a~ 1a. 1b- 1b+", remark: "1 away"},
		"is waited for while it leaves":         {seen: three + "2? 2a~ 1a~", remark: "2 away", faults: "took shop-1 while shop-2 was terminating"},
		"a pod that ends without a word":        {seen: three + "2a. 2b- 2b+", remark: "1 away"},
		"a fleet of one gets a pod more":        {seen: "1? 1= 0a+ 1a- 1a+ 0a~ 0a. 0b- 0b+ 1a~ 1a.", remark: "1 away"},
		"a pod more stays, and the first goes":  {seen: three + "3a- 3a+ 2a~ 2a. 2b- 2b+ 1a~ 1a. 1b- 1b+ 0a~ 0a.", remark: "1 away"},
		"and is not missed in the next rollout": {seen: three + "3a- 3a+ 0a~ 0a. 0b- 0b+ 3a~ 3a. 2a~ 2a. 2b- 2b+", remark: "1 away"},
		"but another one is":                    {seen: three + "3a- 3a+ 0a~ 0a. 3a~ 3a. 2a~", remark: "away", faults: "took shop-2 while shop-3 was gone"},
		"which is not there yet":                {seen: "1? 1= 0a+ 1a- 0a~", remark: "1 away", faults: "took shop-0 while shop-1 was not ready"},
		"and of which nobody is told":           {seen: "1? 1= 0a+ 1a- 1a+ 2= 1=", faults: "status.replicas said 2, but no more than 1 were asked for"},
		"status.replicas comes down late":       {seen: "3? 3= 0a+ 1a+ 2a+ 2? 3= 2="},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watch{stop: func() {}, expected: map[types.UID]bool{}, places: map[string]*place{}}
			for word := range strings.FieldsSeq(c.seen) {
				show(w, word)
			}
			remark, faults := w.end()
			if (c.remark == "") != (remark == "") || !strings.Contains(remark, c.remark) {
				t.Errorf("the remark is %q, want %q", remark, c.remark)
			}
			if text := strings.Join(faults, "; "); (c.faults == "") != (text == "") || !strings.Contains(text, c.faults) || len(faults) > 1 {
				t.Errorf("the faults are %q, want %q", text, c.faults)
			}
		})
	}
}

// show lets a watch see what a word means.
func show(w *watch, word string) {
	number, kind := word[:1], word[len(word)-1]
	switch kind {
	case '?', '=':
		field, value := map[byte]string{'?': "spec", '=': "status"}[kind], int64(number[0]-'0')
		object := map[string]any{"spec": map[string]any{"replicas": w.asked}}
		object[field] = map[string]any{"replicas": value}
		w.seeCluster(&unstructured.Unstructured{Object: object}, false)
		return
	case '!':
		w.expect(types.UID(word[:2]))
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fleet.Name + "-" + number, UID: types.UID(word[:2])}}
	if kind == '+' || kind == '~' {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if kind == '~' {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	w.seePod(pod, kind == '.')
}
