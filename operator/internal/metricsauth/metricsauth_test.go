package metricsauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"
)

// apiServer answers reviews, and counts them.
type apiServer struct {
	tokens         authenticationv1.TokenReviewStatus
	access         authorizationv1.SubjectAccessReviewStatus
	tokensErr      error
	accessErr      error
	reviewedTokens []string
	reviewedAccess []authorizationv1.SubjectAccessReviewSpec
}

// reviewer asks this API server.
func (s *apiServer) reviewer(clock *testclock.FakePassiveClock) *reviewer {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		s.reviewedTokens = append(s.reviewedTokens, review.Spec.Token)
		review.Status = s.tokens
		return true, review, s.tokensErr
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		s.reviewedAccess = append(s.reviewedAccess, review.Spec)
		review.Status = s.access
		return true, review, s.accessErr
	})
	return newReviewer(client.AuthenticationV1().TokenReviews(), client.AuthorizationV1().SubjectAccessReviews(), clock)
}

// allowing is an API server that lets prometheus read everything.
func allowing() *apiServer {
	return &apiServer{
		tokens: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: "prometheus", UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a", "b"}},
		}},
		access: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
	}
}

// get is the status that a request for the path gets, through the filter.
func get(t *testing.T, r *reviewer, path, authorization string) int {
	t.Helper()
	handler, err := r.filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer.Code
}

func TestWhoMayRead(t *testing.T) {
	const served = http.StatusNoContent
	failing := errors.New("no API server")
	cases := map[string]struct {
		authorization string
		change        func(*apiServer)
		want          int
	}{
		"a token that may":           {"Bearer good", func(*apiServer) {}, served},
		"in small letters":           {"bearer good", func(*apiServer) {}, served},
		"no token":                   {"", func(*apiServer) {}, http.StatusUnauthorized},
		"an empty token":             {"Bearer ", func(*apiServer) {}, http.StatusUnauthorized},
		"a password":                 {"Basic Z29vZA==", func(*apiServer) {}, http.StatusUnauthorized},
		"a token of nobody":          {"Bearer bad", func(s *apiServer) { s.tokens.Authenticated = false }, http.StatusUnauthorized},
		"a token that is not valid":  {"Bearer bad", func(s *apiServer) { s.tokens = authenticationv1.TokenReviewStatus{Error: "invalid"} }, http.StatusUnauthorized},
		"a user who may not":         {"Bearer good", func(s *apiServer) { s.access.Allowed = false }, http.StatusForbidden},
		"a user who is denied":       {"Bearer good", func(s *apiServer) { s.access = authorizationv1.SubjectAccessReviewStatus{Denied: true} }, http.StatusForbidden},
		"allowed and denied":         {"Bearer good", func(s *apiServer) { s.access.Denied = true }, http.StatusInternalServerError},
		"no review of the token":     {"Bearer good", func(s *apiServer) { s.tokensErr = failing }, http.StatusInternalServerError},
		"no review of what it may":   {"Bearer good", func(s *apiServer) { s.accessErr = failing }, http.StatusInternalServerError},
		"an error, whatever it says": {"Bearer good", func(s *apiServer) { s.tokensErr, s.tokens.Authenticated = failing, false }, http.StatusInternalServerError},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			server := allowing()
			test.change(server)
			if got := get(t, server.reviewer(testclock.NewFakePassiveClock(time.Now())), "/metrics", test.authorization); got != test.want {
				t.Errorf("answered %d, want %d", got, test.want)
			}
		})
	}
}

// TestReviewNamesTheWholeUser: a role may be given to a group, and a policy may look at the rest.
func TestReviewNamesTheWholeUser(t *testing.T) {
	server := allowing()
	get(t, server.reviewer(testclock.NewFakePassiveClock(time.Now())), "/metrics", "Bearer good")
	if diff := cmp.Diff([]string{"good"}, server.reviewedTokens); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	want := []authorizationv1.SubjectAccessReviewSpec{{
		User: "prometheus", UID: "1", Groups: []string{"scrapers"}, Extra: map[string]authorizationv1.ExtraValue{"pod": {"a", "b"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	if diff := cmp.Diff(want, server.reviewedAccess); diff != "" {
		t.Errorf("access (-want +got):\n%s", diff)
	}
}

// What is asked about is what the request wants: who may get the metrics may not do anything else.
func TestReviewNamesTheRequest(t *testing.T) {
	server := allowing()
	handler, err := server.reviewer(testclock.NewFakePassiveClock(time.Now())).filter(logr.Discard(), http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, path string }{{http.MethodGet, "/metrics"}, {http.MethodPost, "/metrics"}, {http.MethodGet, "/debug/pprof/heap"}} {
		request := httptest.NewRequest(c.method, c.path+"?a=b", nil)
		request.Header.Set("Authorization", "Bearer good")
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
	var asked []authorizationv1.NonResourceAttributes
	for _, review := range server.reviewedAccess {
		asked = append(asked, *review.NonResourceAttributes)
	}
	want := []authorizationv1.NonResourceAttributes{{Path: "/metrics", Verb: "get"}, {Path: "/metrics", Verb: "post"}, {Path: "/debug/pprof/heap", Verb: "get"}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
}

func TestAnswersAreRemembered(t *testing.T) {
	for name, change := range map[string]func(*apiServer){
		"yes":    func(*apiServer) {},
		"no":     func(s *apiServer) { s.access.Allowed = false },
		"nobody": func(s *apiServer) { s.tokens.Authenticated = false },
	} {
		t.Run(name, func(t *testing.T) {
			server, clock := allowing(), testclock.NewFakePassiveClock(time.Now())
			change(server)
			reviewer := server.reviewer(clock)
			reviews := func(want int) {
				t.Helper()
				if len(server.reviewedTokens) != want {
					t.Errorf("%d reviews, want %d", len(server.reviewedTokens), want)
				}
			}
			first := get(t, reviewer, "/metrics", "Bearer good")
			if again := get(t, reviewer, "/metrics", "Bearer good"); again != first {
				t.Errorf("first %d, then %d", first, again)
			}
			reviews(1)
			get(t, reviewer, "/metrics", "Bearer other")
			reviews(2)
			get(t, reviewer, "/other", "Bearer good")
			reviews(3)
			clock.SetTime(clock.Now().Add(remembered))
			get(t, reviewer, "/metrics", "Bearer good")
			reviews(4)
		})
	}
}

func TestErrorsAreNotRemembered(t *testing.T) {
	server := allowing()
	server.accessErr = errors.New("no API server")
	reviewer := server.reviewer(testclock.NewFakePassiveClock(time.Now()))
	if got := get(t, reviewer, "/metrics", "Bearer good"); got != http.StatusInternalServerError {
		t.Errorf("answered %d without an API server", got)
	}
	server.accessErr = nil
	if got := get(t, reviewer, "/metrics", "Bearer good"); got != http.StatusNoContent {
		t.Errorf("answered %d when the API server was back", got)
	}
}

func TestMadeUpTokensFillNoMemory(t *testing.T) {
	server := allowing()
	server.tokens.Authenticated = false
	reviewer := server.reviewer(testclock.NewFakePassiveClock(time.Now()))
	for i := range 3 * maxRemembered {
		get(t, reviewer, "/metrics", fmt.Sprintf("Bearer %d", i))
	}
	if len(reviewer.verdicts) > maxRemembered {
		t.Errorf("%d answers are kept, at most %d", len(reviewer.verdicts), maxRemembered)
	}
}
