package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

// cookies are events in which the fleet gets another Erlang cookie.
const cookies = "cookies"

// cookieEvents are a rotation alone, and one in whose middle something else happens to the fleet.
func cookieEvents() []event {
	kinds := []struct {
		name string
		do   act
	}{
		{"cookie", inTurn(rotateCookie)},
		{"cookie-delete", inTurn(rotateHalf, deleteLowest)},
		{"cookie-scale-up", inTurn(rotateHalf, scaleTo(6))},
		{"cookie-cookie", inTurn(rotateHalf, rotateCookie)},
	}
	var all []event
	for _, kind := range kinds {
		all = append(all, event{name: kind.name, group: cookies, replicas: 3, maxP99: pairP99, do: each(kind.do), judge: planned})
	}
	return all
}

// rotateHalf returns when some pods have the new cookie and some the old one.
func rotateHalf(ctx context.Context, s *subject) error {
	before, err := s.Lives(ctx)
	if err != nil {
		return err
	}
	if err := rotateCookie(ctx, s); err != nil {
		return err
	}
	return s.midway(ctx, before)
}

// rotateCookie asks for another cookie.
func rotateCookie(ctx context.Context, s *subject) error {
	text, err := s.In(ctx, "", "get", "lsc/"+fleet.Name, "--output=jsonpath={.spec.clustering.cookieGeneration}")
	if err != nil {
		return err
	}
	generation := 1
	if text != "" {
		if generation, err = strconv.Atoi(text); err != nil {
			return err
		}
	}
	patch := fmt.Sprintf(`{"spec":{"clustering":{"cookieGeneration":%d}}}`, generation+1)
	_, err = s.In(ctx, "", "patch", "lsc/"+fleet.Name, "--type=merge", "--patch="+patch)
	return err
}
