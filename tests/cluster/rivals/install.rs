//! Installs kubenurse and goldpinger with the objects and defaults of their own manifests, each in
//! a namespace of its own. What differs from these is said where it is.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::{Outside, http, https, text};
use crate::agents::{Zones, items};
use crate::cluster::Cluster;
use crate::image;
use crate::wait::until;

const PROGRAMS: [&str; 2] = ["kubenurse", "goldpinger"];
/// The port of both programs.
const PORT: u16 = 8080;
const RBAC: &str = "rbac.authorization.k8s.io";

/// Both programs on every node. They are removed as this is dropped.
pub struct Rivals<'a> {
    cluster: &'a Cluster,
    /// The address of each program's pod by node.
    pods: [BTreeMap<String, String>; 2],
}

impl<'a> Rivals<'a> {
    /// Loads the two programs of `directory` onto the nodes, and waits until their pods are Ready.
    pub fn install(cluster: &'a Cluster, directory: &Path, zones: &Zones, outside: &Outside) -> Self {
        for program in PROGRAMS {
            let config = json!({"Entrypoint": [format!("/{program}")]});
            image::load(cluster, &directory.join(program), program, &name(program), &config);
        }
        let mut this = Self { cluster, pods: Default::default() };
        for manifest in [kubenurse(outside), goldpinger()] {
            let apply = ["apply", "--namespace=", "--filename", "-"];
            let applied = cluster.kubectl_with_input(&apply, &manifest.to_string()).unwrap();
            assert!(applied.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&applied.stderr));
        }
        this.pods = PROGRAMS.map(|program| {
            until(&format!("a Ready pod of {program} on every node"), || {
                let pods = ready(&cluster.json(&["get", "pods", "--namespace", program])?);
                if pods.keys().eq(zones.keys()) { Ok(pods) } else { Err(format!("{pods:?}")) }
            })
        });
        this
    }

    /// The addresses from which the metrics of both on this node are read.
    pub fn metrics(&self, node: &str) -> impl Iterator<Item = String> {
        self.pods.iter().map(move |pods| format!("http://{}:{PORT}/metrics", pods[node]))
    }

    /// The answer of goldpinger on this node about all nodes.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn check_all(&self, node: &str) -> Result<Value, String> {
        let url = format!("http://{}:{PORT}/check_all", self.pods[1][node]);
        let said = self.cluster.on_node(node, &["curl", "--silent", "--show-error", "--max-time", "10", &url])?;
        serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))
    }
}

impl Drop for Rivals<'_> {
    fn drop(&mut self) {
        let roles = PROGRAMS.map(|program| {
            let delete = ["delete", "clusterrole,clusterrolebinding", program, "--ignore-not-found"];
            self.cluster.kubectl(&delete)
        });
        let namespaces = self.cluster.kubectl(&["delete", "namespace", PROGRAMS[0], PROGRAMS[1], "--ignore-not-found"]);
        for deleted in roles.into_iter().chain([namespaces]) {
            if let Err(error) = deleted {
                eprintln!("a program is left behind: {error}");
            }
        }
    }
}

/// The Ready pods of a list: their addresses by node.
fn ready(list: &Value) -> BTreeMap<String, String> {
    let is_ready = |pod: &&Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let address = |pod: &Value| (text(&pod["spec"]["nodeName"]), text(&pod["status"]["podIP"]));
    items(list).filter(is_ready).map(address).collect()
}

fn name(program: &str) -> String {
    format!("docker.io/local/{program}:test")
}

/// kubenurse as its example manifests have it, with checks each 5 s. Different are:
/// - No check through an ingress, because the cluster has none.
/// - Our targets outside as extra checks, and the certificate of one of them as an authority.
///   Without that, kubenurse fails at it all the time, or does not look at certificates at all.
fn kubenurse(outside: &Outside) -> Value {
    let program = PROGRAMS[0];
    let targets = format!("outside:{}|certificate:{}", http(), https());
    let env = json!([
        {"name": "KUBENURSE_SERVICE_URL", "value": format!("http://{program}.{program}.svc.cluster.local:{PORT}")},
        {"name": "KUBENURSE_NAMESPACE", "value": program},
        {"name": "KUBENURSE_NEIGHBOUR_FILTER", "value": format!("app.kubernetes.io/name={program}")},
        {"name": "KUBENURSE_CHECK_ME_INGRESS", "value": "false"},
        {"name": "KUBENURSE_EXTRA_CHECKS", "value": targets},
        {"name": "KUBENURSE_EXTRA_CA", "value": "/authorities/authorities.pem"},
    ]);
    let container = json!({"name": program, "image": name(program), "env": env, "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": PORT}, "failureThreshold": 1, "periodSeconds": 3},
        "volumeMounts": [{"name": "authorities", "mountPath": "/authorities", "readOnly": true}]});
    let pod = json!({"serviceAccountName": program, "containers": [container],
        "volumes": [{"name": "authorities", "configMap": {"name": "authorities"}}]});
    let authorities = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "authorities", "namespace": program}, "data": {"authorities.pem": outside.authorities()}});
    let reads = ["get", "list", "watch"];
    let rights = [granted("Role", program, "pods", &reads), granted("ClusterRole", program, "nodes", &reads)];
    list(program, PORT, &pod, [authorities].into_iter().chain(rights.into_iter().flatten()))
}

/// goldpinger as its chart has it, with pings and checks each 30 s. Different are:
/// - The targets, of which it has none by default: a name, and our targets outside.
/// - No files of its page, and the built-in settings of its log.
fn goldpinger() -> Value {
    let program = PROGRAMS[1];
    let targets = format!("{} {}", http(), https());
    let env = json!([
        {"name": "HOSTNAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "HOST", "value": "0.0.0.0"},
        {"name": "PORT", "value": PORT.to_string()},
        {"name": "LABEL_SELECTOR", "value": format!("app.kubernetes.io/name={program}")},
        {"name": "HOSTS_TO_RESOLVE", "value": "kubernetes.default.svc.cluster.local"},
        {"name": "HTTP_TARGETS", "value": targets},
    ]);
    let probe = json!({"httpGet": {"path": "/", "port": PORT}});
    let restricted = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true, "runAsNonRoot": true});
    let container = json!({"name": program, "image": name(program), "env": env, "ports": [{"containerPort": PORT}],
        "livenessProbe": probe, "readinessProbe": probe, "securityContext": restricted});
    let pod = json!({"serviceAccountName": program, "containers": [container],
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 2000,
            "seccompProfile": {"type": "RuntimeDefault"}}});
    list(program, 8081, &pod, granted("ClusterRole", program, "pods", &["list"]))
}

/// The objects that both have, and `others`.
fn list(program: &str, service_port: u16, pod: &Value, others: impl IntoIterator<Item = Value>) -> Value {
    let labels = json!({"app.kubernetes.io/name": program});
    let meta = json!({"name": program, "namespace": program, "labels": labels});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": program}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {
            "selector": labels, "ports": [{"port": service_port, "targetPort": PORT}]}}),
    ];
    objects.extend(others);
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    objects.push(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": {
        "selector": {"matchLabels": labels}, "template": template}}));
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}

/// A role with these verbs, and its binding to the account of the same name.
fn granted(kind: &str, program: &str, resource: &str, verbs: &[&str]) -> [Value; 2] {
    let version = format!("{RBAC}/v1");
    let mut meta = json!({"name": program});
    if kind == "Role" {
        meta["namespace"] = json!(program);
    }
    let account = json!({"kind": "ServiceAccount", "name": program, "namespace": program});
    [
        json!({"apiVersion": version, "kind": kind, "metadata": meta, "rules": [
            {"apiGroups": [""], "resources": [resource], "verbs": verbs}]}),
        json!({"apiVersion": version, "kind": format!("{kind}Binding"), "metadata": meta, "subjects": [account],
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": program}}),
    ]
}

/// The server whose certificate expires, and the program of it: it reads the certificate again for
/// each connection, so that no connection fails for anything but the certificate.
pub const HTTPS: &str = r#"
import http.server, ssl, sys
address, port, certificate, key = sys.argv[1:]
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    def get_request(self):
        connection, peer = self.socket.accept()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), peer
Server((address, int(port)), Page).serve_forever()
"#;
