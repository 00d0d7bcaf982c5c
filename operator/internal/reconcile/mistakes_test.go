package reconcile

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestMistakesAreNews(t *testing.T) {
	m, began := &Mistakes{}, time.Now()
	shop, other := types.NamespacedName{Name: "shop"}, types.NamespacedName{Name: "other"}
	for i, step := range []struct {
		object types.NamespacedName
		text   string
		at     time.Duration
		want   bool
	}{
		{shop, "a", 0, true},
		{shop, "a", time.Second, false},
		{shop, "a", time.Hour, false},
		{other, "a", time.Hour, true},
		{shop, "b", time.Hour, true},
		{shop, "c", time.Hour, true},
		{shop, "d", time.Hour, true},
		{shop, "e", time.Hour, true},
		{shop, "f", time.Hour, true},
		{shop, "g", time.Hour, false},
		{shop, "g", time.Hour + 59*time.Second, false},
		{shop, "g", time.Hour + time.Minute, true},
		{shop, "h", time.Hour + time.Minute, false},
	} {
		if got := m.isNews(step.object, step.text, began.Add(step.at)); got != step.want {
			t.Errorf("step %d: isNews = %v", i, got)
		}
	}
	m.Forget(shop)
	if !m.isNews(shop, "g", began.Add(time.Hour+time.Minute)) {
		t.Error("a new object of that name is not told of")
	}
}
