"""What Pod Security, OpenShift and GKE Autopilot refuse in a pod.

Each function returns a list of what is refused, and an empty list for a pod that is admitted. The
rules are those of

- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://docs.redhat.com/en/documentation/openshift_container_platform, "Managing security context
  constraints"
- https://github.com/CrowdStrike/falcon-helm/issues/310, where GKE Autopilot names its own

as far as they concern what these manifests can contain. They do not take the place of a cluster:
`.ci/full cluster` applies the manifest to one that enforces "restricted".
"""
# Kubernetes' safe sysctls, without those of TCP.
SAFE_SYSCTLS = {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
                "net.ipv4.ip_local_reserved_ports", "net.ipv4.ping_group_range"}
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
AUTOPILOT_CAPABILITIES = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
                          "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_PTRACE"}
# What keeps the proxies of service meshes out: of Istio's sidecars and of its ambient mode, and of
# Linkerd.
# - https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/
# - https://istio.io/latest/docs/ambient/usage/add-workloads/
# - https://linkerd.io/2/features/proxy-injection/
UNMESHED_LABELS = {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
UNMESHED_ANNOTATIONS = {"linkerd.io/inject": "disabled"}


def meshed(template):
    """The labels and annotations that a pod, or the template of one, lacks to stay without a proxy."""
    metadata = template["metadata"]
    lacking = UNMESHED_LABELS.items() - metadata.get("labels", {}).items()
    lacking |= UNMESHED_ANNOTATIONS.items() - metadata.get("annotations", {}).items()
    return sorted(name for name, _ in lacking)


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def effective(pod, container, field):
    """The field of the container's security context, or else of the pod's."""
    return container.get("securityContext", {}).get(field, pod.get("securityContext", {}).get(field))


def host_access(pod):
    refused = [field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field)]
    refused += ["hostPath" for volume in pod.get("volumes", []) if "hostPath" in volume]
    for container in containers(pod):
        refused += ["privileged"] if container.get("securityContext", {}).get("privileged") else []
        refused += ["hostPort" for port in container.get("ports", []) if port.get("hostPort") or pod.get("hostNetwork")]
    return refused


def added_capabilities(pod):
    return {name for it in containers(pod) for name in it.get("securityContext", {}).get("capabilities", {}).get("add", [])}


def restricted(pod):
    """Pod Security "restricted", of Kubernetes 1.30 and newer."""
    refused = host_access(pod) + unprivileged(pod)
    refused += [sysctl["name"] for sysctl in pod.get("securityContext", {}).get("sysctls", []) if sysctl["name"] not in SAFE_SYSCTLS]
    refused += ["volume" for volume in pod.get("volumes", []) if not VOLUMES & volume.keys()]
    for container in containers(pod):
        refused += [] if effective(pod, container, "runAsNonRoot") is True else ["runAsNonRoot"]
        refused += ["runAsUser"] if effective(pod, container, "runAsUser") == 0 else []
        probes = [container.get(name, {}) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers = probes + list(container.get("lifecycle", {}).values())
        refused += ["probe's host" for it in handlers for way in ("httpGet", "tcpSocket") if it.get(way, {}).get("host")]
    return refused


def unprivileged(pod):
    refused = [f"capability {name}" for name in sorted(added_capabilities(pod) - {"NET_BIND_SERVICE"})]
    for container in containers(pod):
        context = container.get("securityContext", {})
        refused += [] if context.get("allowPrivilegeEscalation") is False else ["allowPrivilegeEscalation"]
        refused += [] if "ALL" in context.get("capabilities", {}).get("drop", []) else ["capabilities.drop"]
        refused += [] if effective(pod, container, "seccompProfile") in ({"type": "RuntimeDefault"},) else ["seccompProfile"]
    return refused


def nonroot_v2(pod):
    """OpenShift's security context constraint nonroot-v2: any user but root."""
    refused = host_access(pod) + unprivileged(pod)
    for container in containers(pod):
        user = effective(pod, container, "runAsUser")
        refused += ["runAsUser"] if user == 0 or (user is None and effective(pod, container, "runAsNonRoot") is not True) else []
    return refused


def restricted_v2(pod, first=1_000_660_000, users=10_000):
    """OpenShift's default constraint: the user must be one of those that the namespace was given."""
    refused = host_access(pod) + unprivileged(pod)
    for container in containers(pod):
        user = effective(pod, container, "runAsUser")
        refused += ["runAsUser"] if user is not None and not first <= user < first + users else []
    return refused


def autopilot(pod):
    """GKE Autopilot."""
    return host_access(pod) + sorted(added_capabilities(pod) - AUTOPILOT_CAPABILITIES)
