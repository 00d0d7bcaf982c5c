{{/*
The name of the Deployment and of everything that belongs to it. A release named livestash does not get its name twice, and neither
does one whose name has nameOverride in it.
*/}}
{{- define "livestash-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if .Values.nameOverride -}}
{{- if contains .Values.nameOverride .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}-{{ .Values.nameOverride }}
{{- end -}}
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
The metadata of an object. Takes a dict of context (the chart's context) and name, and optionally namespace, component (operator),
and labels and annotations of this object alone. The chart's own labels win over the user's: other objects are found by them.
*/}}
{{- define "livestash-operator.metadata" -}}
{{- $own := dict
  "app.kubernetes.io/name" "livestash-operator"
  "app.kubernetes.io/instance" .context.Release.Name
  "app.kubernetes.io/component" (.component | default "operator")
  "app.kubernetes.io/part-of" "livestash"
  "app.kubernetes.io/managed-by" .context.Release.Service
  "app.kubernetes.io/version" .context.Chart.AppVersion
  "helm.sh/chart" (printf "livestash-operator-%s" (.context.Chart.Version | replace "+" "_")) -}}
{{- $metadata := dict "name" .name "labels" (merge $own (.labels | default dict) .context.Values.commonLabels) -}}
{{- with .namespace -}}
{{- $_ := set $metadata "namespace" . -}}
{{- end -}}
{{- with merge (dict) (.annotations | default dict) .context.Values.commonAnnotations -}}
{{- $_ := set $metadata "annotations" . -}}
{{- end -}}
{{- toYaml $metadata -}}
{{- end -}}

{{- define "livestash-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "livestash-operator.fullname" .) -}}
{{- end -}}

{{/*
An image with the registry of all images, where there is one, in the place of its own. What stands before the first slash is a
registry when it has a dot or a colon, or is localhost. Takes a dict of context and image.
*/}}
{{- define "livestash-operator.pulled" -}}
{{- $image := .image -}}
{{- with .context.Values.global.imageRegistry -}}
{{- $image = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $image "") -}}
{{- end -}}
{{- $image -}}
{{- end -}}

{{- define "livestash-operator.repository" -}}
{{- include "livestash-operator.pulled" (dict "context" . "image" .Values.image.repository) -}}
{{- end -}}

{{- define "livestash-operator.image" -}}
{{- include "livestash-operator.repository" . }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/*
The chart's Secrets for pulling and those of all charts, which other charts take as names alone.
*/}}
{{- define "livestash-operator.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
{{- toYaml . -}}
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
  {{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded"
        "helm.sh/hook-output-log-policy" "hook-failed" }}
  {{- include "livestash-operator.metadata" (dict "context" $ "name" (printf "%s-test-%s" (include "livestash-operator.fullname" $) .name)
        "namespace" $.Release.Namespace "component" "test" "annotations" $hook) | nindent 2 }}
spec:
  restartPolicy: OnFailure
  activeDeadlineSeconds: 60
  {{- $secure := hasPrefix "https:" .url }}
  {{- if $secure }}
  serviceAccountName: {{ include "livestash-operator.fullname" $ }}-test
  {{- end }}
  automountServiceAccountToken: {{ $secure }}
  {{- with include "livestash-operator.imagePullSecrets" $ }}
  imagePullSecrets:
    {{- . | nindent 4 }}
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
