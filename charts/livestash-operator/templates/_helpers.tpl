{{/*
The name of the Deployment and of everything that belongs to it. A release named livestash does not get its name twice.
*/}}
{{- define "livestash-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if has .Release.Name (list "livestash" "livestash-operator") -}}
livestash-operator
{{- else -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}-livestash-operator
{{- end -}}
{{- end -}}

{{/*
The labels that select the operator's pods. A Deployment's selector is fixed: nothing here may change between versions.
*/}}
{{- define "livestash-operator.selectorLabels" -}}
app.kubernetes.io/name: livestash-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/*
The labels of every object. Takes a dict of context (the chart's context), component and optionally more, labels of the
user's for this object. The chart's own labels win over the user's: other objects are found by them.
*/}}
{{- define "livestash-operator.labelsOf" -}}
{{- $own := dict
  "app.kubernetes.io/name" "livestash-operator"
  "app.kubernetes.io/instance" .context.Release.Name
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/part-of" "livestash"
  "app.kubernetes.io/managed-by" .context.Release.Service
  "app.kubernetes.io/version" .context.Chart.AppVersion
  "helm.sh/chart" (printf "livestash-operator-%s" (.context.Chart.Version | replace "+" "_")) -}}
{{- toYaml (merge $own (.more | default dict) .context.Values.commonLabels) -}}
{{- end -}}

{{- define "livestash-operator.labels" -}}
{{- include "livestash-operator.labelsOf" (dict "context" . "component" "operator") -}}
{{- end -}}

{{- define "livestash-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "livestash-operator.fullname" .) -}}
{{- end -}}

{{- define "livestash-operator.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- with .Values.image.digest -}}
{{- printf "%s:%s@%s" $.Values.image.repository $tag . -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
{{- end -}}

{{- define "livestash-operator.metricsPort" -}}
{{- ternary "8443" "8080" .Values.metrics.secure -}}
{{- end -}}

{{/*
The rules of a role, from a file that hack/charts/sync copied. Takes a dict of context and file.
*/}}
{{- define "livestash-operator.rules" -}}
{{- .context.Files.Get (printf "files/rules/%s.yaml" .file) | trim -}}
{{- end -}}

{{/*
A pod for `helm test` that asks the operator's own image whether a URL answers. Takes a dict of context, name and url.
Over https it shows the token of the test's own ServiceAccount, to nobody but the operator. It tries for a minute, because `helm install` without --wait returns before the operator is up.
*/}}
{{- define "livestash-operator.testPod" -}}
{{- $ := .context -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "livestash-operator.fullname" $ }}-test-{{ .name }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "livestash-operator.labelsOf" (dict "context" $ "component" "test") | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    helm.sh/hook-output-log-policy: hook-failed
spec:
  restartPolicy: OnFailure
  activeDeadlineSeconds: 60
  {{- $secure := hasPrefix "https:" .url }}
  {{- if $secure }}
  serviceAccountName: {{ include "livestash-operator.fullname" $ }}-test
  {{- end }}
  automountServiceAccountToken: {{ $secure }}
  {{- with $.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $.Values.podSecurityContext | nindent 4 }}
  containers:
  - name: check
    image: {{ include "livestash-operator.image" $ }}
    imagePullPolicy: {{ $.Values.image.pullPolicy }}
    {{- if $secure }}
    args: [check, {{ .url | quote }}, /etc/livestash/ca.crt]
    volumeMounts:
    - name: authority
      mountPath: /etc/livestash
      readOnly: true
    {{- else }}
    args: [check, {{ .url | quote }}]
    {{- end }}
    resources:
      requests:
        cpu: 10m
        memory: 16Mi
      limits:
        memory: 64Mi
    securityContext:
      {{- toYaml $.Values.securityContext | nindent 6 }}
  {{- if $secure }}
  volumes:
  - name: authority
    configMap:
      name: {{ include "livestash-operator.fullname" $ }}-metrics-ca
  {{- end }}
{{- end -}}
