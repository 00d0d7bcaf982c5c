// Package audit reads what an API server has logged of the requests of one account.
package audit

import (
	"bytes"
	"encoding/json"
	"time"
)

// Event is the part of an audit.k8s.io/v1 Event that matters here.
type Event struct {
	Stage                    string    `json:"stage"`
	RequestURI               string    `json:"requestURI"`
	Verb                     string    `json:"verb"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	User                     struct {
		Username string `json:"username"`
	} `json:"user"`
	// ObjectRef is nil when the request was for no resource.
	ObjectRef *struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// Read is the event of a line of the log. Nil when it is of another account, or of a request that is in the log again when it is done.
func Read(line []byte, account string) (*Event, error) {
	// Most lines are of others. Decoding them all would take time from the programs that are measured.
	if !bytes.Contains(line, []byte(account)) {
		return nil, nil
	}
	event := &Event{}
	if err := json.Unmarshal(line, event); err != nil {
		return nil, err
	}
	if event.User.Username != account || event.Stage == "RequestReceived" || event.Stage == "ResponseStarted" {
		return nil, nil
	}
	return event, nil
}

// Target is the resource that was asked for, with its subresource, for example livestashclusters/status. Empty when it was none.
func (e *Event) Target() string {
	switch ref := e.ObjectRef; {
	case ref == nil:
		return ""
	case ref.Subresource != "":
		return ref.Resource + "/" + ref.Subresource
	default:
		return ref.Resource
	}
}
