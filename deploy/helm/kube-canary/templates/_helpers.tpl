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
{{- if and .Values.checks.defaults (gt (len .Values.checks.list) 28) -}}
{{ fail "checks.list: at most 28 checks beside the 4 default ones" }}
{{- end -}}
{{- range .Values.checks.list }}
{{ . }}
{{- end -}}
{{- end -}}

{{/* Not empty if a ConfigMap has checks, or authorities for them. */}}
{{- define "kube-canary.checks.files" -}}
{{- if or .Values.checks.list .Values.checks.authorities }}yes{{ end -}}
{{- end -}}

{{/* Labels of the pods of act. Another name, so that no Service or NetworkPolicy of the agents selects them. */}}
{{- define "kube-canary.act.labels" -}}
app.kubernetes.io/name: kube-canary-act
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: act
app.kubernetes.io/part-of: kube-canary
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Name and labels of an object of act, which may have no namespace. */}}
{{- define "kube-canary.act.metadata" -}}
name: {{ include "kube-canary.fullname" . }}-act
labels:
  app.kubernetes.io/name: kube-canary
  {{- omit (include "kube-canary.act.labels" . | fromYaml) "app.kubernetes.io/name" | toYaml | nindent 2 }}
  {{- with .Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What act may do in its own namespace beside Events. */}}
{{- define "kube-canary.act.rules" -}}
# The API cannot restrict the name of what is created.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "kube-canary.fullname" . }}-act]
  verbs: [get, update]
- apiGroups: [apps]
  resources: [daemonsets]
  resourceNames: [{{ include "kube-canary.fullname" . }}]
  verbs: [get]
{{- end -}}

{{/* The pod of act, or of the hook that takes conditions back. */}}
{{- define "kube-canary.act.pod" -}}
{{- $remove := .remove -}}
{{- with .root -}}
serviceAccountName: {{ include "kube-canary.fullname" . }}-act
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector: {kubernetes.io/os: linux}
# The user is that of the image, or the one that OpenShift assigns.
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: act
    image: {{ include "kube-canary.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    {{- $args := list "act" }}
    {{- if $remove }}{{ $args = append $args "--remove" }}
    {{- else }}
    {{- if .Values.act.conditions }}{{ $args = append $args "--conditions" }}{{ end }}
    {{- if .Values.act.dryRun }}{{ $args = append $args "--dry-run" }}{{ end }}
    {{- end }}
    args: {{ $args | toJson }}
    env:
      - name: POD_NAME
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
      - name: POD_NAMESPACE
        valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
      {{- if ne (include "kube-canary.fullname" .) "kube-canary" }}
      - {name: KUBE_CANARY_SERVICE, value: {{ include "kube-canary.fullname" . | quote }}}
      {{- end }}
      {{- if ne .Values.logLevel "info" }}
      - {name: KUBE_CANARY_LOG_LEVEL, value: {{ .Values.logLevel | quote }}}
      {{- end }}
      {{- if not $remove }}
      {{- with .Values.act.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- end }}
    {{- if not $remove }}
    ports:
      - name: http
        containerPort: 9877
    livenessProbe:
      httpGet: {path: /healthz, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources:
      requests: {cpu: 10m, memory: 8Mi}
      limits: {memory: 32Mi}
    {{- if and .Values.act.secret (not $remove) }}
    volumeMounts:
      - {name: secret, mountPath: /etc/kube-canary-act, readOnly: true}
    {{- end }}
{{- if and .Values.act.secret (not $remove) }}
volumes:
  - name: secret
    secret: {secretName: {{ .Values.act.secret | quote }}}
{{- end }}
{{- end -}}
{{- end -}}
