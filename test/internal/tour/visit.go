package tour

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/livestash-dev/livestash/test/internal/chromium"
)

const (
	// visitWithin bounds each step of a visit. A deploy with the agent takes about a minute on a small machine.
	visitWithin = 5 * time.Minute
	// visitLooks is the time between two looks at the page.
	visitLooks = 200 * time.Millisecond
	// visitStashes is how often the visitor stashes on each side.
	visitStashes = 5
	// pictureWidth is that of the window for pictures, in pixels of the page.
	pictureWidth = 1000
)

// Seen is what a visitor has seen at the end.
type Seen struct {
	// With and Without are by side.
	With, Without SeenSide
}

// SeenSide is what a visitor has seen of a side.
type SeenSide struct {
	// Count is the visitor's own counter, of visitStashes. Kept and Lost are of the other users.
	Count, Kept, Lost int
}

func (s Seen) String() string {
	side := func(name string, one SeenSide) string {
		return fmt.Sprintf("%s the agent: own counter %d of %d; of the others %d kept their state, %d lost it",
			name, one.Count, visitStashes, one.Kept, one.Lost)
	}
	return side("with", s.With) + "\n" + side("without", s.Without)
}

// verdict is an error unless the page has shown what it is there for.
func (s Seen) verdict() error {
	var err error
	if s.With.Count != visitStashes || s.With.Lost > 0 || s.With.Kept == 0 {
		err = errors.New("with the agent somebody lost the state, or nobody had to come back")
	}
	if s.Without.Lost == 0 {
		err = errors.Join(err, errors.New("without the agent nobody lost the state"))
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s)
	}
	return nil
}

// visitor is somebody with a browser.
type visitor struct {
	tab      *chromium.Tab
	frames   map[string]string
	pictures string
}

// Visit does what the page says, in a real browser, and says what came of it. Pictures of it go to a folder, or nowhere
// when that is empty. It fails when the page does not show what it is there for.
func Visit(ctx context.Context, address, pictures string) (seen Seen, err error) {
	page, err := url.Parse(address)
	if err != nil {
		return Seen{}, err
	}
	browser, err := chromium.Start(nil, "")
	if err != nil {
		return Seen{}, err
	}
	defer func() { err = errors.Join(err, browser.Close()) }()
	v := visitor{frames: map[string]string{}, pictures: pictures}
	for _, side := range Sides() {
		v.frames[side.Name] = fmt.Sprintf("%s://%s.%s/", page.Scheme, side.Name, page.Host)
	}
	if v.tab, err = browser.Open(ctx, address, ""); err != nil {
		return Seen{}, err
	}
	if err := v.visit(ctx); err != nil {
		return Seen{}, err
	}
	for name, one := range map[string]*SeenSide{"with": &seen.With, "without": &seen.Without} {
		if *one, err = v.look(ctx, name); err != nil {
			return Seen{}, err
		}
	}
	return seen, seen.verdict()
}

// visit follows the page's own steps.
func (v visitor) visit(ctx context.Context) error {
	for _, side := range Sides() {
		if err := v.stash(ctx, side.Name); err != nil {
			return err
		}
	}
	here := `[...document.querySelectorAll(".others")].every(e => /^(\d+) other users, \1 connected/.test(e.innerText))`
	if err := v.until(ctx, "", here+" && "+enabled); err != nil {
		return err
	}
	if err := v.picture(ctx, "tour-before.png"); err != nil {
		return err
	}
	// The button does nothing while a fleet is not settled, which may be so again for a moment. The picture is of the moment when both applications are on
	// their way.
	const press = enabled + ` && document.getElementById("deploy").click()`
	if err := v.until(ctx, "", `document.querySelectorAll(".pods .leaving").length > 0 || (`+press+`, false)`); err != nil {
		return err
	}
	if err := v.picture(ctx, "tour-deploy.png"); err != nil {
		return err
	}
	if err := v.until(ctx, "", enabled+` && document.querySelectorAll(".pods li:not(.ready)").length == 0`); err != nil {
		return err
	}
	for _, side := range Sides() {
		if err := v.until(ctx, side.Name, connected); err != nil {
			return err
		}
	}
	return v.picture(ctx, "tour-after.png")
}

// enabled is whether the button may be pressed, connected whether the application's page has its socket.
const (
	enabled   = `!document.getElementById("deploy").disabled`
	connected = `!!document.querySelector("[data-phx-main].phx-connected")`
)

func (v visitor) stash(ctx context.Context, side string) error {
	if err := v.until(ctx, side, connected); err != nil {
		return err
	}
	for i := range visitStashes {
		if err := v.tab.EvaluateWithin(ctx, v.frames[side], `document.querySelector("button").click()`, nil); err != nil {
			return err
		}
		if err := v.until(ctx, side, fmt.Sprintf(`document.getElementById("count").innerText == "%d"`, i+1)); err != nil {
			return err
		}
	}
	return nil
}

// look reads a side from the page.
func (v visitor) look(ctx context.Context, side string) (SeenSide, error) {
	var seen SeenSide
	err := v.tab.EvaluateWithin(ctx, v.frames[side], `+document.getElementById("count").innerText`, &seen.Count)
	if err != nil {
		return seen, err
	}
	others := fmt.Sprintf(`[...document.querySelectorAll("#%s .others span")].map(e => parseInt(e.innerText))`, side)
	var numbers []int
	if err := v.tab.Evaluate(ctx, others, &numbers); err != nil {
		return seen, err
	}
	if len(numbers) != 2 {
		return seen, fmt.Errorf("the page shows %v of the other users, not two numbers", numbers)
	}
	seen.Kept, seen.Lost = numbers[0], numbers[1]
	return seen, nil
}

// until waits until an expression is true in the page, or in a side's frame. While that is loaded it cannot be asked.
func (v visitor) until(ctx context.Context, side, expression string) error {
	ctx, cancel := context.WithTimeout(ctx, visitWithin)
	defer cancel()
	for {
		var holds bool
		var err error
		if side == "" {
			err = v.tab.Evaluate(ctx, expression, &holds)
		} else {
			err = v.tab.EvaluateWithin(ctx, v.frames[side], expression, &holds)
		}
		if err == nil && holds {
			return nil
		}
		if !pause(ctx, visitLooks) {
			var shown string
			_ = v.tab.Evaluate(context.WithoutCancel(ctx), "document.body.innerText", &shown)
			err = errors.Join(ctx.Err(), err)
			return fmt.Errorf("waited in vain for %s %s (%w); the page shows:\n%s", side, expression, err, shown)
		}
	}
}

func (v visitor) picture(ctx context.Context, name string) error {
	if v.pictures == "" {
		return nil
	}
	png, err := v.tab.Picture(ctx, pictureWidth)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(v.pictures, name), png, 0o644)
}
