package liveview

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/html"
)

// page is what a LiveView page hands to its socket.
type page struct{ id, csrf, session, static string }

// parsePage reads the CSRF token and the main LiveView of a page.
func parsePage(body io.Reader) (page, error) {
	var p page
	for tokens := html.NewTokenizer(body); ; {
		switch tokens.Next() {
		case html.ErrorToken:
			if err := tokens.Err(); !errors.Is(err, io.EOF) {
				return page{}, fmt.Errorf("read the page: %w", err)
			}
			if p.csrf == "" || p.id == "" || p.session == "" || p.static == "" {
				return page{}, errors.New("the page has no csrf-token, or no element with data-phx-main, an id, data-phx-session and data-phx-static")
			}
			return p, nil
		case html.StartTagToken, html.SelfClosingTagToken:
			p.take(tokens.Token())
		default:
		}
	}
}

func (p *page) take(tag html.Token) {
	attributes := map[string]string{}
	for _, attribute := range tag.Attr {
		attributes[attribute.Key] = attribute.Val
	}
	if tag.Data == "meta" && attributes["name"] == "csrf-token" {
		p.csrf = attributes["content"]
	}
	if _, main := attributes["data-phx-main"]; main {
		p.id, p.session, p.static = attributes["id"], attributes["data-phx-session"], attributes["data-phx-static"]
	}
}
