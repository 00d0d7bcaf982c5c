package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Tab is a page in a profile of its own. It is in front of its window until it is hidden.
type Tab struct {
	browser *Browser
	// profile, target and session are the protocol's names of its profile, of itself, and of the talk with it.
	profile, target, session string
	// cover is the tab that hides it. Empty: none was made yet.
	cover string
}

// Open opens a page in a new profile. The script runs first in it, also when it is loaded anew.
func (b *Browser) Open(ctx context.Context, address, script string) (*Tab, error) {
	t, err := b.Blank(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.call(ctx, t.session, "Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": script}, nil); err != nil {
		return nil, err
	}
	return t, t.Load(ctx, address)
}

// Blank is a tab in a new profile that shows nothing yet.
func (b *Browser) Blank(ctx context.Context) (*Tab, error) {
	t := &Tab{browser: b}
	var profile struct {
		ID string `json:"browserContextId"`
	}
	if err := b.call(ctx, "", "Target.createBrowserContext", nil, &profile); err != nil {
		return nil, err
	}
	t.profile = profile.ID
	var err error
	if t.target, err = t.newTarget(ctx); err != nil {
		return nil, err
	}
	var talk struct {
		ID string `json:"sessionId"`
	}
	err = b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": t.target, "flatten": true}, &talk)
	if err != nil {
		return nil, err
	}
	t.session = talk.ID
	return t, b.call(ctx, t.session, "Page.enable", nil, nil)
}

// Load opens a page in the tab.
func (t *Tab) Load(ctx context.Context, address string) error {
	var loaded struct {
		Error string `json:"errorText"`
	}
	if err := t.browser.call(ctx, t.session, "Page.navigate", map[string]any{"url": address}, &loaded); err != nil {
		return err
	}
	if loaded.Error != "" {
		return fmt.Errorf("%s: %s", address, loaded.Error)
	}
	return nil
}

// Listen has a function hear what the protocol tells of the tab: of its requests (Network), of its console and of its scripts' errors
// (Runtime, Log). The function must not give orders to the browser.
func (t *Tab) Listen(ctx context.Context, hear func(event string, details json.RawMessage)) error {
	t.browser.mu.Lock()
	t.browser.listeners[t.session] = hear
	t.browser.mu.Unlock()
	for _, domain := range []string{"Network", "Runtime", "Log"} {
		if err := t.browser.call(ctx, t.session, domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// Resize gives the window another size, in pixels of the page.
func (t *Tab) Resize(ctx context.Context, width, height int) error {
	size := map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}
	return t.browser.call(ctx, t.session, "Emulation.setDeviceMetricsOverride", size, nil)
}

// Prefer tells pages what the user likes: "dark" or "light".
func (t *Tab) Prefer(ctx context.Context, scheme string) error {
	features := []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}
	return t.browser.call(ctx, t.session, "Emulation.setEmulatedMedia", map[string]any{"features": features}, nil)
}

// Type presses one key after the other, where the page has its focus.
func (t *Tab) Type(ctx context.Context, text string) error {
	for _, sign := range text {
		for _, what := range []string{"keyDown", "keyUp"} {
			key := map[string]any{"type": what, "key": string(sign)}
			if what == "keyDown" {
				key["text"] = string(sign)
			}
			if err := t.browser.call(ctx, t.session, "Input.dispatchKeyEvent", key, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tab) newTarget(ctx context.Context) (string, error) {
	var made struct {
		ID string `json:"targetId"`
	}
	err := t.browser.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": t.profile}, &made)
	return made.ID, err
}

// Hide puts another tab before this one, in the same window: to the page it is hidden, and to its timers.
func (t *Tab) Hide(ctx context.Context) error {
	if t.cover != "" {
		return t.front(ctx, t.cover)
	}
	var err error
	t.cover, err = t.newTarget(ctx)
	return err
}

// Show puts the tab in front.
func (t *Tab) Show(ctx context.Context) error { return t.front(ctx, t.target) }

func (t *Tab) front(ctx context.Context, target string) error {
	return t.browser.call(ctx, "", "Target.activateTarget", map[string]any{"targetId": target}, nil)
}

// Evaluate is the value of an expression in the page, as JSON can hold it.
func (t *Tab) Evaluate(ctx context.Context, expression string, value any) error {
	return t.evaluate(ctx, map[string]any{"expression": expression, "returnByValue": true}, value)
}

// EvaluateWithin is the same in the page of a frame, whose address begins with this. It sees what that page shows, and not
// the variables of its scripts.
func (t *Tab) EvaluateWithin(ctx context.Context, frame, expression string, value any) error {
	id, err := t.frame(ctx, frame)
	if err != nil {
		return err
	}
	var world struct {
		ID int `json:"executionContextId"`
	}
	if err := t.browser.call(ctx, t.session, "Page.createIsolatedWorld", map[string]any{"frameId": id}, &world); err != nil {
		return err
	}
	return t.evaluate(ctx, map[string]any{"expression": expression, "returnByValue": true, "contextId": world.ID}, value)
}

// frame is the protocol's name of the frame whose address begins with this.
func (t *Tab) frame(ctx context.Context, address string) (string, error) {
	var tree struct {
		Tree struct {
			Children []struct {
				Frame struct {
					ID  string `json:"id"`
					URL string `json:"url"`
				} `json:"frame"`
			} `json:"childFrames"`
		} `json:"frameTree"`
	}
	if err := t.browser.call(ctx, t.session, "Page.getFrameTree", nil, &tree); err != nil {
		return "", err
	}
	for _, child := range tree.Tree.Children {
		if strings.HasPrefix(child.Frame.URL, address) {
			return child.Frame.ID, nil
		}
	}
	return "", fmt.Errorf("there is no frame with %s", address)
}

// Picture is what the tab shows, as a PNG, when its window has this width: all of the page, however high it is.
func (t *Tab) Picture(ctx context.Context, width int) ([]byte, error) {
	size := map[string]any{"width": width, "height": 0, "deviceScaleFactor": 2, "mobile": false}
	if err := t.browser.call(ctx, t.session, "Emulation.setDeviceMetricsOverride", size, nil); err != nil {
		return nil, err
	}
	if err := t.browser.call(ctx, t.session, "Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil); err != nil {
		return nil, err
	}
	var taken struct {
		Data []byte `json:"data"`
	}
	err := t.browser.call(ctx, t.session, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &taken)
	return taken.Data, err
}

func (t *Tab) evaluate(ctx context.Context, order map[string]any, value any) error {
	var outcome struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	err := t.browser.call(ctx, t.session, "Runtime.evaluate", order, &outcome)
	if err != nil {
		return err
	}
	if outcome.Exception != nil {
		return fmt.Errorf("%s: %s", order["expression"], outcome.Exception.Text)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(outcome.Result.Value, value)
}
