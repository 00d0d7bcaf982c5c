# The project's commands. `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VERSION    := $(shell sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$$/\1/p' Chart.yaml)
REGISTRY   ?= ghcr.io/livestash-dev
# The Kubernetes that `make demo` and the end-to-end tests use: local (made here), kind, or current (your kubeconfig).
CLUSTER    ?= local
# The port of this machine for the page that `make demo` ends with.
TOUR_PORT  ?= 8321
export VERSION REGISTRY CLUSTER TOUR_PORT

# One way of compiling for every program, test and linter, so that what they share is compiled once. `make lint` vets.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -vet=off
# A compiler lives for seconds: a fifth of its time goes into collecting garbage that could lie.
GO := GOGC=off GOMEMLIMIT=1GiB go

# Pinned versions of what is built from Go modules; of the others, hack/tools/go.mod has them.
K6_VERSION            := v1.8.1
KUBERNETES_VERSION    := v1.37.1
GOLANGCI_LINT_VERSION := v2.15.0
GOVULNCHECK_VERSION   := v1.9.0

BIN    := $(CURDIR)/bin
DIST   := $(CURDIR)/.cache/dist
ASSETS := $(BIN)/kubebuilder-assets
# What the API servers of the tests have logged of the operator.
AUDIT_LOGS := $(foreach suite,cluster benchmark restarts e2e,$(CURDIR)/.cache/audit/$(suite).log)
export PATH := $(BIN):$(PATH)

# The last file that compiling the agent writes, where the operator embeds it.
AGENT  := operator/internal/podagent/ebin/livestash_agent.app

STEP       := hack/step
LINT       := GOGC=400 GOMEMLIMIT=4GiB golangci-lint run --config $(CURDIR)/.golangci.yml
sources     = $(shell find $(1) -name '*.go' -not -name '*_test.go' 2>/dev/null) $(wildcard $(1)/go.mod $(1)/go.sum)

KUBERNETES_LDFLAGS  = $(foreach package,component-base/version client-go/pkg/version,-X k8s.io/$(package).gitVersion=$(KUBERNETES_VERSION) -X k8s.io/$(package).gitMajor=1 -X k8s.io/$(package).gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))) -X k8s.io/$(package).gitTreeState=clean)

# What the demo and the end-to-end tests need. Who has a cluster has a kubectl and a registry: neither Kubernetes nor
# Redis is made for it.
CLUSTER_NEEDS := $(BIN)/helm images $(if $(filter local,$(CLUSTER)),local-cluster-binaries redis-images)

##@ Start here

.PHONY: help
help: ## Show the commands.
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*##/ {printf "  make %-23s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: demo-prepare ## From nothing to a running fleet under load, on one machine (CLUSTER=kind or current: on yours).
	@hack/demo/run

.PHONY: demo-prepare
demo-prepare: $(CLUSTER_NEEDS) kubectl-livestash $(BIN)/tour

.PHONY: visit
visit: $(BIN)/tour ## Visit the page that `make demo` ends with, in a real browser: pictures, and a check of what it shows (OUT=docs/images).
	@$(STEP) deps-browser "A browser" hack/deps browser
	@mkdir -p $(or $(OUT),docs/images) && tour -visit http://tour.localhost:$(TOUR_PORT)/ -pictures $(or $(OUT),docs/images)

.PHONY: demo-down
demo-down: ## Remove what `make demo` made.
	@hack/demo/down

.PHONY: test
test: ## Run every test, the end-to-end tests on the local cluster included.
	@hack/test-all

.PHONY: test-needs
test-needs: $(CLUSTER_NEEDS) prometheus-image nginx-image kubectl-livestash survival-image operator $(BIN)/promtool $(BIN)/k6
	@$(STEP) deps-browser "A browser, and a proxy" hack/deps browser proxy
	@$(STEP) deps-agent "Packages for the agent" hack/deps agent

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/helm check-generated ## Check style, generated files, scripts and charts.
	@$(STEP) deps-lint "Packages for linting" hack/deps lint
	@$(STEP) lint-operator "Lint the operator" bash -c 'cd operator && $(LINT) ./...'
	@$(STEP) lint-test "Lint the tests" bash -c 'cd test && $(LINT) ./...'
	@$(STEP) lint-k6 "Lint the load tests' tests" bash -c 'cd loadtests/k6/test && $(LINT) ./...'
	@$(STEP) lint-rivals "Lint the rivals" bash -c 'for rival in json-go chat-go; do (cd loadtests/rivals/$$rival && $(LINT) ./...) || exit; done'
	@# Not cmd/kubernetes: it is a table of programs, and checking it would check all of Kubernetes.
	@$(STEP) lint-localcluster "Lint the local cluster" bash -c 'cd test/coredns && $(LINT) ./... && cd ../localcluster && $(LINT) --build-tags integration ./cmd/localcluster ./cmd/pause ./internal/... ./integration'
	@$(STEP) lint-scripts "Lint shell scripts" bash -c 'grep -rlE "^#!/usr/bin/env bash" hack .ci agent loadtests --include="*" | xargs shellcheck'
	@$(STEP) lint-charts "Lint charts" bash -c 'helm lint --strict . charts/livestash-operator charts/livestash-observability'

##@ Pieces

.PHONY: test-operator
test-operator: $(ASSETS) ## Unit tests of the operator, and its logic against a real API server.
	@command -v chromium chromium-browser google-chrome >/dev/null || $(STEP) deps-browser "A browser for the report's tests" hack/deps browser
	@$(STEP) test-operator "Test the operator" bash -c 'mkdir -p .cache/audit && cd operator && AUDIT_DIR=$(CURDIR)/.cache/audit BROWSER_NEEDED=1 KUBEBUILDER_ASSETS=$(ASSETS) go test -count=1 -v ./...'

.PHONY: test-security
FUZZTIME ?= 5s
test-security: $(AGENT) $(ASSETS) $(BIN)/k6 $(BIN)/helm $(BIN)/kubectl $(BIN)/golangci-lint operator kubectl-livestash ## Fuzz everything that reads what others write (FUZZTIME=5s for each; 10m every night), test what docs/security.md promises, and scan; the first run compiles for minutes.
	@$(STEP) fuzz "Fuzz what reads from others" hack/fuzz $(FUZZTIME)
	@$(STEP) promises "Test what docs/security.md promises, and what two tenants can do to each other" env KUBEBUILDER_ASSETS=$(ASSETS) hack/promises
	@$(STEP) scan-pods "Look for pods, rights and licences that nobody should have" bash -c 'cd test && go test -count=1 -v -run "Restricted|NotLoose|Forbid|UserRoles|Licenses" ./charts ./licenses'
	@$(STEP) scan-code "Look for mistakes in the code, with gosec" bash -c 'cd operator && $(LINT) --enable-only gosec ./...'
	@$(MAKE) --no-print-directory $(BIN)/govulncheck
	@hack/scan --if-reachable
	@hack/promises --elsewhere

.PHONY: scan
scan: $(BIN)/govulncheck $(BIN)/k6 ## Look for known holes in the Go modules; needs the database of vuln.go.dev, or a copy (GOVULNDB=).
	@hack/scan

.PHONY: check-rights
check-rights: ## Compare the operator's roles with what it did in the last test-operator and test-e2e, by the API servers' audit logs.
	@$(STEP) check-rights "Compare the operator's rights with what it used" bash -c 'cd test && go run ./rights -manifests ../manifests/install.yaml $(AUDIT_LOGS)'

.PHONY: test-agent
test-agent: $(AGENT) image-builder ## Tests of the agent, on this machine's OTP and on Debian's newest.
	@$(STEP) deps-agent "Packages for the agent" hack/deps agent
	@$(STEP) test-agent "Test the agent" hack/test-agent

.PHONY: bench-agent
bench-agent: $(AGENT) ## What one scrape costs with 100 and with 50,000 processes, and a look at the owners of 10,000 stashes.
	@agent/test/bench .cache/agent/ebin

.PHONY: bench-handover
bench-handover: $(AGENT) ## How fast stashes go to the pods that stay (ROWS= BYTES=published|tiny PEERS= TLS=1 WITHIN=).
	@agent/test/bench-handover .cache/agent/ebin

.PHONY: bench-mesh
bench-mesh: $(AGENT) ## What a full mesh of many nodes is like (NODES=50 STASHES=100 REST=60 ROLL=10).
	@agent/test/bench-mesh .cache/agent/ebin

.PHONY: bench-shadows
bench-shadows: $(AGENT) ## What copies of ETS stashes cost, and how fast they are taken over (ROWS= PEERS=).
	@agent/test/bench-shadows .cache/agent/ebin

.PHONY: test-charts
test-charts: $(BIN)/helm $(BIN)/kubectl $(BIN)/promtool operator kubectl-livestash $(BIN)/k6 ## Render the charts in many ways and check the result; draw the dashboards; check what docs say.
	@$(STEP) test-charts "Test the charts" bash -c 'cd test && go test -count=1 -v ./charts/... ./rights/... ./licenses/... ./dashboards/... ./docs/...'

.PHONY: test-docs
test-docs: docs ## Read the documentation's site in a real browser: every page, light and dark, on a phone, menu and search.
	@$(STEP) deps-browser "A browser" hack/deps browser
	@$(STEP) test-docs "Test the documentation's site" bash -c 'cd test && BROWSER_NEEDED=1 SITE=$(CURDIR)/.cache/site go test -count=1 -v ./site'

.PHONY: test-grafana
test-grafana: ## Hold the dashboards against the types that Grafana publishes (needs Node.js; fetches two packages once).
	@$(STEP) deps-grafana "Grafana's types" hack/grafana-schema .cache/grafana
	@$(STEP) test-grafana "Test the dashboards against Grafana's types" bash -c 'cd test && GRAFANA_SCHEMA=$(CURDIR)/.cache/grafana go test -count=1 -v ./dashboards -run TestGrafanasTypes'

.PHONY: test-k6
test-k6: $(BIN)/k6 ## The load tests' library and scenario, against servers that misbehave.
	@$(STEP) test-k6 "Test the load tests" bash -c 'k6 run --quiet loadtests/k6/test/unit.js && k6 run --quiet loadtests/k6/test/fuzz.js && k6 run --quiet loadtests/k6/test/rooms_unit.js && cd loadtests/k6/test && go test -count=1 -parallel 6 -v ./...'

.PHONY: bench-k6
bench-k6: $(BIN)/k6 ## What a user costs k6: many per VU against one VU each (USERS= ROUNDS= DURATION=).
	@cd loadtests/k6/test && go run ./bench $(if $(USERS),-users $(USERS)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(DURATION),-duration $(DURATION))

.PHONY: bench-k6-ceiling
bench-k6-ceiling: $(BIN)/k6 ## How many deliveries and requests a second k6 itself takes for each core (ROUNDS= DURATION= MATCH=).
	@cd loadtests/k6/test && go run ./ceiling $(if $(MATCH),-match "$(MATCH)") $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(DURATION),-duration $(DURATION))

.PHONY: test-workload
test-workload: image-builder ## ExUnit tests of the OTP workload, which its image's build runs.
	@$(STEP) test-workload "Test the OTP workload" hack/images/build --test loadtests/workloads/otp loadtests/workloads/otp/Dockerfile

.PHONY: test-rivals
test-rivals: image-builder ## The servers that Phoenix is compared with.
	@$(STEP) test-rivals "Test the rivals" bash -c 'for rival in json-go chat-go; do (cd loadtests/rivals/$$rival && go test -count=1 -v ./...) || exit; done; hack/images/build --test loadtests/rivals/rails loadtests/rivals/rails/Dockerfile'

.PHONY: test-localcluster
test-localcluster: local-cluster-binaries ## The local cluster itself: up, down, killed half-way.
	@$(STEP) test-localcluster "Test the local cluster" bash -c 'cd test/localcluster && go test -count=1 -v -tags=integration -timeout 20m ./internal/... ./integration'

.PHONY: test-e2e
test-e2e: $(CLUSTER_NEEDS) prometheus-image nginx-image kubectl-livestash ## End-to-end tests (CLUSTER=local, kind or current).
	@command -v chromium chromium-browser google-chrome >/dev/null || $(STEP) deps-browser "A browser for the tour" hack/deps browser
	@BROWSER_NEEDED=1 hack/test-e2e

.PHONY: survival
survival: $(CLUSTER_NEEDS) survival-image ## Prove that sessions survive (SESSIONS= ADAPTERS= EVENTS= AGENT=on|off SHADOW=on|off WORKLOAD= TLS= PERSISTENCE= COPIES= AT_ONCE=).
	@hack/survival

.PHONY: test-survival
test-survival: $(CLUSTER_NEEDS) survival-image ## The same at the size of a test.
	@$(STEP) deps-browser "A browser, and a proxy" hack/deps browser proxy
	@hack/survival --test

.PHONY: test-browser
test-browser: $(CLUSTER_NEEDS) survival-image ## The same with the tabs of a real Chromium (TABS=3 of each of KINDS= ADAPTERS= EVENTS= WORKLOAD= PAYLOAD_KEYS=).
	@$(STEP) deps-browser "A browser, and a proxy" hack/deps browser proxy
	@hack/survival --browser

.PHONY: soak
soak: $(CLUSTER_NEEDS) survival-image ## Random events and a ledger of every stash (ADAPTERS= MINUTES=10 SEED= USERS=300 PODS=3 FAULTS=on WORKLOAD= TLS=).
	@hack/soak

.PHONY: test-soak
test-soak: $(CLUSTER_NEEDS) survival-image ## The same at the size of a test (SEED= MINUTES= ADAPTERS= repeat one that failed).
	@hack/soak --test

.PHONY: test-upgrade
# Of 23 November 2026: before variants, events and comparisons of benchmarks, and TLS of the managed Redis.
FROM ?= e514b54
test-upgrade: $(CLUSTER_NEEDS) survival-image ## Upgrade the operator of an earlier commit to this one under load, and go back (FROM=commit).
	@FROM=$(FROM) hack/test-upgrade

.PHONY: migrations
migrations: $(CLUSTER_NEEDS) survival-image ## How often the command before a rollout runs while the operator is killed at random (ROUNDS=200 LIFE=8s SEED= AT_MOST=).
	@hack/migrations

.PHONY: matrix
matrix: $(CLUSTER_NEEDS) $(if $(PRESET),rival-images) ## The published benchmark, users and times divided by SCALE=, or another published test: PRESET=json-api|fullsweep|chat-100k|channels-vs-cable (PATCH= WORKLOAD= OUT= KEEP=1).
	@hack/matrix

.PHONY: report
report: ## Write the report of a LiveStashBenchmark of your cluster (NAME= NAMESPACE= OUT=).
	@hack/report "$(NAME)" "$(NAMESPACE)" "$(OUT)"

.PHONY: pictures
pictures: ## Draw the dashboards from a Prometheus (PROMETHEUS= LAST= SCRAPE= VARS= DASHBOARDS= OUT=docs/images).
	@cd test && go run ./dashboards/draw $(if $(PROMETHEUS),-prometheus $(PROMETHEUS)) $(if $(LAST),-last $(LAST)) $(if $(SCRAPE),-scrape $(SCRAPE)) $(addprefix -var ,$(VARS)) -out $(abspath $(or $(OUT),docs/images)) $(DASHBOARDS)

.PHONY: test-scale
test-scale: operator local-cluster-binaries ## The operator's request counts, at a small size.
	@$(STEP) test-scale "Count the operator's requests" bash -c 'cd test && go test -count=1 -v ./scale/...'

.PHONY: bench-operator
N ?= 300
bench-operator: operator local-cluster-binaries ## Create N LiveStashClusters at once and measure the operator (PODS= AGENTS=1 SILENT= UPHEAVALS=1); FAULTS=all N=20: what it gets over.
	@cd test && go run ./scale -n $(N) -bin $(BIN) $(if $(PODS),-pods $(PODS)) $(if $(AGENTS),-agents) $(if $(SILENT),-silent $(SILENT)) $(if $(UPHEAVALS),-upheavals) $(if $(FAULTS),-faults $(FAULTS))

.PHONY: bench-overhead
bench-overhead: $(CLUSTER_NEEDS) ## What the agent costs its virtual machine (ROUNDS= USERS= WORKLOAD= CONTROL= CHECK=).
	@hack/overhead

##@ Generated files

.PHONY: generate
generate: $(BIN)/controller-gen $(BIN)/kubectl ## Make deep copies, CRDs, RBAC, manifests, chart files, API reference.
	@hack/generate

.PHONY: check-generated
check-generated: $(BIN)/controller-gen $(BIN)/kubectl ## Fail when a generated file is stale.
	@$(STEP) check-generated "Check generated files" hack/generate --check

##@ Documentation

.PHONY: docs
docs: ## Build the site of the documentation in .cache/site, and check its links (needs Python 3; fetches packages once).
	@$(STEP) docs "Build the documentation's site" hack/site/build

##@ Images

.PHONY: images
images: operator $(BIN)/k6 image-builder ## Build the images as archives in .cache/dist (with Docker, or without).
	@mkdir -p $(DIST)/operator && cp -u $(BIN)/manager $(BIN)/podagent $(DIST)/operator/
	@$(STEP) image-operator "Image of the operator" hack/images/build $(DIST)/operator operator/Dockerfile $(REGISTRY)/livestash-operator:$(VERSION) $(DIST)/livestash-operator.tar
	@$(STEP) image-k6 "Image of the load tests" hack/images/build . loadtests/k6/Dockerfile $(REGISTRY)/livestash-k6:$(VERSION) $(DIST)/livestash-k6.tar
	@$(STEP) image-workload-otp "Image of the OTP workload" hack/images/build loadtests/workloads/otp loadtests/workloads/otp/Dockerfile $(REGISTRY)/livestash-workload-otp:$(VERSION) $(DIST)/livestash-workload-otp.tar

.PHONY: rival-images
rival-images: image-builder ## Build the images of the servers that Phoenix is compared with.
	@for rival in json-go chat-go; do \
	  mkdir -p $(DIST)/rivals/$$rival && \
	  $(STEP) build-$$rival "Build the rival $$rival" bash -c "cd loadtests/rivals/$$rival && $(GO) build -ldflags '-s -w' -o $(DIST)/rivals/$$rival/ ." && \
	  $(STEP) image-$$rival "Image of the rival $$rival" hack/images/build $(DIST)/rivals/$$rival loadtests/rivals/$$rival/Dockerfile $(REGISTRY)/livestash-rival-$$rival:$(VERSION) $(DIST)/livestash-rival-$$rival.tar || exit; \
	done
	@$(STEP) image-rails "Image of the rival rails" hack/images/build loadtests/rivals/rails loadtests/rivals/rails/Dockerfile $(REGISTRY)/livestash-rival-rails:$(VERSION) $(DIST)/livestash-rival-rails.tar

.PHONY: redis-images
redis-images: image-builder ## Build what stands in for the images of Redis and its exporter where no registry is.
	@$(STEP) image-redis "Image of Redis" hack/images/build test/images/redis test/images/redis/Dockerfile $(REGISTRY)/livestash-test-redis:$(VERSION) $(DIST)/local/redis.tar
	@$(STEP) image-redis-exporter "Image of Redis's exporter" hack/images/build test/images/redis-exporter test/images/redis-exporter/Dockerfile $(REGISTRY)/livestash-test-redis-exporter:$(VERSION) $(DIST)/local/redis-exporter.tar

.PHONY: prometheus-image
prometheus-image: $(BIN)/prometheus image-builder ## Build the image of the Prometheus that the end-to-end tests ask.
	@mkdir -p $(DIST)/prometheus && cp -u $(BIN)/prometheus $(DIST)/prometheus/
	@$(STEP) image-prometheus "Image of Prometheus" hack/images/build $(DIST)/prometheus test/images/prometheus/Dockerfile $(REGISTRY)/livestash-test-prometheus:$(VERSION) $(DIST)/livestash-test-prometheus.tar

.PHONY: nginx-image
nginx-image: image-builder ## Build the image of the proxy that the end-to-end tests put before a fleet.
	@$(STEP) image-nginx "Image of nginx" hack/images/build test/images/nginx test/images/nginx/Dockerfile $(REGISTRY)/livestash-test-nginx:$(VERSION) $(DIST)/livestash-test-nginx.tar

.PHONY: survival-image
survival-image: $(DIST)/survival/survival-client image-builder ## Build the image that holds the sessions of `make survival` and the users of `make soak`.
	@$(STEP) image-survival "Image of the survival test" hack/images/build $(DIST)/survival test/survival/client/Dockerfile $(REGISTRY)/livestash-survival:$(VERSION) $(DIST)/livestash-survival.tar

$(DIST)/survival/survival-client: $(call sources,test/survival/client test/survival/internal test/internal test/soak/users test/soak/ledger) test/go.mod test/go.sum
	@$(STEP) build-survival "Build the survival test's client" bash -c 'cd test && $(GO) build -ldflags "-s -w" -o $@ ./survival/client'

$(BIN)/tour: $(call sources,test/tour test/internal) $(wildcard test/internal/tour/page/*) test/go.mod test/go.sum
	@$(STEP) build-tour "Build the tour" bash -c 'cd test && $(GO) build -ldflags "-s -w" -o $@ ./tour'

.PHONY: image-builder
image-builder:
	@docker info >/dev/null 2>&1 || $(STEP) deps-images "Packages for images" hack/deps images

##@ Releases

.PHONY: package
package: $(BIN)/helm ## Package the charts with every image by digest, and the plugin (DIGESTS=file OUT=folder PUSH=oci://...): docs/how-to/release.md.
	@PUSH="$(PUSH)" hack/package "$(DIGESTS)" "$(OUT)"
	@hack/package-plugin "$(OUT)"

.PHONY: package-plugin
package-plugin: ## Build the plugin for every platform, with its krew manifest (PLATFORMS="linux/amd64 ..." OUT=folder).
	@hack/package-plugin "$(OUT)"

.PHONY: sbom
sbom: ## List what is inside of images and charts, with syft (OUT=folder).
	@hack/sbom "$(OUT)"

.PHONY: sign
sign: ## Sign images and charts by digest, and attest what is inside, with cosign (DIGESTS=file OUT=folder).
	@hack/sign "$(DIGESTS)" "$(OUT)"

##@ The local cluster

.PHONY: cluster-up
cluster-up: local-cluster-binaries ## One real Kubernetes on this machine, in a network namespace of its own.
	@localcluster up

.PHONY: cluster-down
cluster-down: ## Remove it without a trace.
	@localcluster down

.PHONY: local-cluster-binaries
local-cluster-binaries: $(BIN)/kubectl $(BIN)/kubernetes $(BIN)/localcluster $(BIN)/pause $(BIN)/coredns ## Build it, and install the packages it needs.
	@$(STEP) deps-cluster "Packages for the local cluster" hack/deps cluster

##@ Programs

.PHONY: operator
operator: $(BIN)/manager $(BIN)/podagent ## Build the operator, and its program for pods.

.PHONY: kubectl-livestash
kubectl-livestash: $(BIN)/kubectl-livestash ## Build the plugin `kubectl livestash` into bin/.

.PHONY: agent
agent: $(AGENT) ## Compile the agent for the operator to embed.

$(AGENT): agent/build $(wildcard agent/src/*)
	@docker info >/dev/null 2>&1 || command -v erlc >/dev/null || $(STEP) deps-agent "Packages for the agent" hack/deps agent
	@$(STEP) build-agent "Compile the agent" agent/build .cache/agent/ebin $(dir $@)

$(BIN)/manager: $(call sources,operator) Chart.yaml
	@$(STEP) build-operator "Build the operator" bash -c 'cd operator && $(GO) build -ldflags "-s -w -X main.version=$(VERSION)" -o $@ ./cmd'

$(BIN)/podagent: $(call sources,operator) $(AGENT) Chart.yaml
	@$(STEP) build-podagent "Build the operator's program for pods" bash -c 'cd operator && $(GO) build -ldflags "-s -w -X main.version=$(VERSION)" -o $@ ./cmd/podagent'

# kubectl_complete-livestash is what kubectl asks for completions.
$(BIN)/kubectl-livestash: $(call sources,operator) Chart.yaml hack/kubectl_complete-livestash
	@$(STEP) build-plugin "Build kubectl livestash" bash -c 'cd operator && $(GO) build -ldflags "-s -w -X main.version=$(VERSION)" -o $@ ./cmd/kubectl-livestash && cp ../hack/kubectl_complete-livestash $(BIN)/'

$(BIN)/kubernetes: $(call sources,test/localcluster/cmd/kubernetes) test/localcluster/go.mod test/localcluster/go.sum
	@$(STEP) build-kubernetes "Build Kubernetes (minutes, once)" bash -c 'cd test/localcluster && $(GO) build -ldflags "-s -w $(KUBERNETES_LDFLAGS)" -o $@ ./cmd/kubernetes'

$(BIN)/localcluster: $(call sources,test/localcluster)
	@$(STEP) build-localcluster "Build the local cluster's command" bash -c 'cd test/localcluster && $(GO) build -ldflags "-s -w" -o $@ ./cmd/localcluster'

$(BIN)/pause: $(call sources,test/localcluster/cmd/pause)
	@$(STEP) build-pause "Build the pause program" bash -c 'cd test/localcluster && $(GO) build -ldflags "-s -w" -o $@ ./cmd/pause'

$(BIN)/coredns: $(call sources,test/coredns)
	@$(STEP) build-coredns "Build CoreDNS" bash -c 'cd test/coredns && $(GO) build -ldflags "-s -w" -o $@ .'

# What uses Kubernetes' libraries is built with one version of them, so that they are compiled once.
TOOLS := hack/tools/go.mod hack/tools/go.sum

# Of all ways to find targets only that of Kubernetes.
$(BIN)/prometheus $(BIN)/promtool &: $(TOOLS)
	@$(STEP) build-prometheus "Build Prometheus (minutes, once)" bash -c 'cd hack/tools && $(GO) build -tags remove_all_sd,enable_kubernetes_sd -ldflags "-s -w" -o $(BIN)/ github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool && touch $(BIN)/prometheus $(BIN)/promtool'

$(BIN)/helm: $(TOOLS)
	@$(STEP) build-helm "Build helm" bash -c 'cd hack/tools && $(GO) build -ldflags "-s -w" -o $@ helm.sh/helm/v4/cmd/helm && touch $@'

# It writes its version into what it makes.
$(BIN)/controller-gen: $(TOOLS)
	@$(STEP) build-controller-gen "Build controller-gen" bash -c 'cd hack/tools && $(GO) build -ldflags "-s -w -X sigs.k8s.io/controller-tools/pkg/version.version=$$(go list -m -f {{.Version}} sigs.k8s.io/controller-tools)" -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen && touch $@'

# An earlier checkout may have a link to kubernetes here: go build would write through it.
$(BIN)/kubectl: test/localcluster/go.mod test/localcluster/go.sum
	@$(STEP) build-kubectl "Build kubectl" bash -c 'rm -f $@ && cd test/localcluster && $(GO) build -ldflags "-s -w $(KUBERNETES_LDFLAGS)" -o $@ k8s.io/kubernetes/cmd/kubectl && touch $@'

$(ASSETS): | $(BIN)/kubectl $(BIN)/kubernetes
	@mkdir -p $@ && for program in etcd kube-apiserver; do ln -sf ../kubernetes $@/$$program; done && ln -sf ../kubectl $@/kubectl

# go_install NAME PACKAGE@VERSION: a program that is a Go module of its own.
define go_install
$(BIN)/$(1): Makefile
	@$(STEP) build-$(1) "Build $(1)" env GOBIN=$(BIN) $(GO) install -ldflags "-s -w" $(2) && touch $$@
endef
$(eval $(call go_install,k6,go.k6.io/k6@$(K6_VERSION)))
$(eval $(call go_install,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)))
$(eval $(call go_install,govulncheck,golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)))

.PHONY: clean
clean: ## Remove built programs, archives and logs.
	rm -rf bin .cache
