{{- define "kube-canary.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "kube-canary" .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-kube-canary" .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kube-canary.selector" -}}
app.kubernetes.io/name: kube-canary
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that stay the same when the chart is upgraded. */}}
{{- define "kube-canary.labels.lasting" -}}
{{ include "kube-canary.selector" . }}
app.kubernetes.io/component: agent
app.kubernetes.io/part-of: kube-canary
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kube-canary.labels" -}}
{{ include "kube-canary.labels.lasting" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Keep the proxy of a service mesh out of a pod, and out of its way: it would answer for the network. */}}
{{- define "kube-canary.unmeshed.labels" -}}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: none
{{- end -}}

{{- define "kube-canary.unmeshed.annotations" -}}
linkerd.io/inject: disabled
{{- end -}}

{{- define "kube-canary.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "kube-canary.metadata" -}}
name: {{ include "kube-canary.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "kube-canary.labels" . | nindent 2 }}
{{- end -}}

{{/* Not empty if the agents have a PodMonitor. */}}
{{- define "kube-canary.podMonitor" -}}
{{- if and .Values.monitoring.enabled .Values.monitoring.podMonitor.enabled }}yes{{ end -}}
{{- end -}}

{{/* Where the pods of the agents and of the test run, and how they get their image. */}}
{{- define "kube-canary.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The lines of the file of failure domains. An agent refuses a file with more of them. */}}
{{- define "kube-canary.domains" -}}
{{- $names := list -}}
{{- $patterns := 0 -}}
{{- range .Values.domains -}}
{{- $names = append $names .domain -}}
{{- if contains "*" .nodes }}{{ $patterns = add1 $patterns }}{{ end -}}
{{- end -}}
{{- if gt (len (uniq $names)) 250 }}{{ fail "domains: at most 250 different domains" }}{{ end -}}
{{- if gt (int $patterns) 500 }}{{ fail "domains: at most 500 patterns with *" }}{{ end -}}
{{- range .Values.domains }}
{{ .nodes }} {{ .domain }}
{{- end -}}
{{- end -}}

{{/* The lines of the checks file. An agent refuses a file with more of them. */}}
{{- define "kube-canary.checks" -}}
{{- if and .Values.checks.defaults (gt (len .Values.checks.list) 29) -}}
{{ fail "checks.list: at most 29 checks beside the 3 default ones" }}
{{- end -}}
{{- range .Values.checks.list }}
{{ . }}
{{- end -}}
{{- end -}}

{{/* Not empty if a ConfigMap has checks, or authorities for them. */}}
{{- define "kube-canary.checks.files" -}}
{{- if or .Values.checks.list .Values.checks.authorities }}yes{{ end -}}
{{- end -}}
