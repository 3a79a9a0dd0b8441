{{- /* Every template takes the scope of this chart: `.` in it, `.Subcharts.idemproxy` in a chart that has it as a dependency. */ -}}

{{- define "idemproxy.name" -}}
{{- $made := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- .Values.fullnameOverride | default $made | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "idemproxy.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "idemproxy.labels" -}}
{{ include "idemproxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "idemproxy.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- /* The configuration file. */ -}}
{{- define "idemproxy.config" -}}
{{- $url := dig "url" "" .Values.config.store -}}
{{- if not (or $url (dig "url_file" "" .Values.config.store)) }}
{{- fail "config.store.url: is missing, and the default, SQLite, would go with its Pod, and with it what has been done: give a Redis" }}
{{- end }}
{{- if regexMatch "^([$][{][^}]*:-)?(sqlite|memory):" $url }}
{{- fail (printf "config.store.url: %s would go with its Pod, and with it what has been done: give a Redis" $url) }}
{{- end }}
{{- $host := ternary "127.0.0.1" "0.0.0.0" (eq .Values.mode "sidecar") -}}
{{- $ours := dict "listen" (printf "%s:8080" $host) "admin" (dict "listen" "0.0.0.0:8081") "log_format" "json" -}}
{{- $whole := mergeOverwrite $ours (deepCopy .Values.config) -}}
{{- range $name, $address := dict "config.listen" $whole.listen "config.admin.listen" $whole.admin.listen }}
{{- if not (regexMatch ":[1-9][0-9]*$" $address) }}
{{- fail (printf "%s: %s: the chart must know the port, for the Pod: write it as a number" $name $address) }}
{{- end }}
{{- $isLoopback := regexMatch "^(127[.]|localhost:|[[]::1[]])" $address -}}
{{- if and $isLoopback (or (eq $name "config.admin.listen") (eq $.Values.mode "standalone")) }}
{{- fail (printf "%s: %s: nobody outside the container reaches that: neither callers, nor the kubelet's probes" $name $address) }}
{{- end }}
{{- if and (not $isLoopback) (eq $name "config.listen") (not $whole.scope) }}
{{- fail (printf "config.scope: is missing, and other Pods reach %s: say whose keys are whose" $address) }}
{{- end }}
{{- end }}
{{- if eq (regexFind "[0-9]+$" $whole.listen) (regexFind "[0-9]+$" $whole.admin.listen) }}
{{- fail (printf "config.admin.listen: %s: its port is that of config.listen: give one of them another" $whole.admin.listen) }}
{{- end }}
{{ $whole | toYaml }}
{{- end }}

{{- /* The port of an address in the configuration. */ -}}
{{- define "idemproxy.port" -}}
{{- regexFind "[0-9]+$" (include "idemproxy.config" . | fromYaml).listen -}}
{{- end }}
{{- define "idemproxy.adminPort" -}}
{{- regexFind "[0-9]+$" (include "idemproxy.config" . | fromYaml).admin.listen -}}
{{- end }}

{{- /* `drain` in whole seconds, rounded up: a Pod's terminationGracePeriodSeconds must be longer. */ -}}
{{- define "idemproxy.drainSeconds" -}}
{{- $drain := .Values.config.drain | default "30s" -}}
{{- $unit := regexFind "[a-z]+$" $drain -}}
{{- $seconds := get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) $unit -}}
{{- if not $seconds }}
{{- fail (printf "config.drain: %s: the chart must know it, for the Pod's grace period: write it without a variable" $drain) }}
{{- end }}
{{- mulf (float64 (regexFind "^[0-9.]+" $drain)) $seconds | ceil | int -}}
{{- end }}

{{- /* A Pod's annotation: another configuration makes other Pods, since it is read at the start only. */ -}}
{{- define "idemproxy.annotations" -}}
checksum/idemproxy: {{ include "idemproxy.config" . | sha256sum }}
{{- end }}

{{- /* A Pod's labels, by which a PodMonitor finds the proxy in it. */ -}}
{{- define "idemproxy.podLabels" -}}
idemproxy/name: {{ include "idemproxy.name" . | quote }}
{{- if eq .Values.mode "sidecar" }}
idemproxy/sidecar: "true"
{{- end }}
{{- end }}

{{- /* The container, without its name. */ -}}
{{- define "idemproxy.containerFields" -}}
image: {{ include "idemproxy.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run, --config, /etc/idemproxy/idemproxy.yaml]
{{- with .Values.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
# Started when it listens. Whether the store is there is another question: without it the proxy is alive, and not ready.
startupProbe: {httpGet: {path: /startupz, port: idemproxy-admin}, periodSeconds: 1, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: idemproxy-admin}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 3}
readinessProbe: {httpGet: {path: /readyz, port: idemproxy-admin}, periodSeconds: 5, timeoutSeconds: 3, failureThreshold: 2}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: idemproxy-config, mountPath: /etc/idemproxy, readOnly: true}
  - {name: idemproxy-spool, mountPath: /var/lib/idemproxy}
  {{- range $number, $name := .Values.secrets }}
  - {name: idemproxy-secret-{{ $number }}, mountPath: {{ printf "/run/secrets/%s" $name | quote }}, readOnly: true}
  {{- end }}
{{- end }}

{{- /* An entry of initContainers. It stays, and ends after the Pod's containers. */ -}}
{{- define "idemproxy.sidecar" -}}
- name: idemproxy
  restartPolicy: Always # what makes it a sidecar
  ports: [{name: idemproxy-admin, containerPort: {{ include "idemproxy.adminPort" . }}}]
  {{- include "idemproxy.containerFields" . | nindent 2 }}
{{- end }}

{{- /* Entries of volumes. A spool takes 256 MiB at most for each worker, and a Pod that comes to a sizeLimit is evicted: so that is
twice as much. The Pod needs an fsGroup, so that the proxy's user may read the Secret and write the spool. */ -}}
{{- define "idemproxy.volumes" -}}
- {name: idemproxy-config, configMap: {name: {{ include "idemproxy.name" . }}}}
- {name: idemproxy-spool, emptyDir: {sizeLimit: {{ mul 512 (int (.Values.config.workers | default 1)) }}Mi}}
{{- range $number, $name := .Values.secrets }}
- {name: idemproxy-secret-{{ $number }}, secret: {secretName: {{ $name | quote }}, defaultMode: 0440}}
{{- end }}
{{- end }}
