{{/*
What to do after an installation. A template of its own, because Helm shows the notes of a release's main chart only.
*/}}
{{- define "livestash-operator.notes" -}}
{{- $namespace := first (append .Values.watchNamespaces "default") -}}
{{- $deployment := include "livestash-operator.fullname" . -}}
The LiveStash operator {{ .Chart.AppVersion }} is installed. It looks after the LiveStashClusters of
{{- if .Values.watchNamespaces }} the namespaces {{ join ", " .Values.watchNamespaces }}{{ else }} all namespaces{{ end }}.

1. Wait until it runs, and let it check itself:

     kubectl rollout status -n {{ .Release.Namespace }} deployment/{{ $deployment }}
     helm test -n {{ .Release.Namespace }} {{ .Release.Name }}

2. Run a fleet. This one is a small application made for trying out, from where the operator's image is; put the image of your own
   release in its place:

kubectl apply -n {{ $namespace }} -f - <<'END'
apiVersion: livestash.dev/v1alpha1
kind: LiveStashCluster
metadata:
  name: shop
spec:
  image: {{ dir (include "livestash-operator.repository" .) }}/livestash-workload-otp:{{ .Chart.AppVersion }}
  replicas: 2
  adapter: ETS
  ttl: 5m
END

3. Look at it:

     kubectl wait -n {{ $namespace }} lsc/shop --for=condition=Ready --timeout=3m
     kubectl get -n {{ $namespace }} lsc
     kubectl describe -n {{ $namespace }} lsc/shop
     kubectl port-forward -n {{ $namespace }} service/shop 4000:80     then open http://localhost:4000/stash/ets

When something is wrong, the conditions that `kubectl describe` shows say what to do; the operator's log is at
`kubectl logs -n {{ .Release.Namespace }} deployment/{{ $deployment }}`.
{{- if .Values.crds.enabled }}

{{ if .Values.crds.keep -}}
`helm uninstall` leaves the CustomResourceDefinitions, the LiveStashClusters with their fleets, and the LiveStashBenchmarks as
they are. To remove them as well, delete these while the operator is still there, then the definitions:

     kubectl delete lsb,lsc --all --all-namespaces
     helm uninstall -n {{ .Release.Namespace }} {{ .Release.Name }}
     kubectl delete crd livestashclusters.livestash.dev livestashbenchmarks.livestash.dev
{{- else -}}
crds.keep is false: `helm uninstall` deletes every LiveStashCluster, every fleet and every LiveStashBenchmark of this Kubernetes cluster.
{{- end }}
{{- end }}
{{- end -}}
