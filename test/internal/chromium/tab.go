package chromium

import (
	"context"
	"encoding/json"
	"fmt"
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
	if err := b.call(ctx, t.session, "Page.enable", nil, nil); err != nil {
		return nil, err
	}
	if err := b.call(ctx, t.session, "Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": script}, nil); err != nil {
		return nil, err
	}
	var loaded struct {
		Error string `json:"errorText"`
	}
	if err := b.call(ctx, t.session, "Page.navigate", map[string]any{"url": address}, &loaded); err != nil {
		return nil, err
	}
	if loaded.Error != "" {
		return nil, fmt.Errorf("%s: %s", address, loaded.Error)
	}
	return t, nil
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
	var outcome struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	err := t.browser.call(ctx, t.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &outcome)
	if err != nil {
		return err
	}
	if outcome.Exception != nil {
		return fmt.Errorf("%s: %s", expression, outcome.Exception.Text)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(outcome.Result.Value, value)
}
