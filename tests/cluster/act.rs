//! What judges find becomes Events, messages and conditions of nodes, by the shipped components,
//! and taints by the Node Readiness Controller. Neither agents nor act may do more than they need.
//! No node but the faulty one has the condition at any time, and nothing is left behind.
//!
//! The receivers are a webhook and Alertmanager, beside the API server in the network namespace of
//! the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Test;
use crate::agents::{Pod, items};
use crate::cluster::{Cluster, NAMESPACE};
use crate::directory::Directory;
use crate::faults::{ApiAway, Cut, IngressLoss};
use crate::process::{self, Background};
use crate::readiness::ReadinessController;
use crate::rights::{NAMESPACES, rights};
use crate::wait::until;

const ACT: &str = include_str!("../../deploy/components/act/act.yaml");
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
/// The address of the control plane, where the receivers listen.
const RECEIVERS: &str = "10.79.0.1";
/// Longer than a verdict must hold to set a condition, and than it takes to be named.
const LONG: Duration = Duration::from_secs(110);
const CONDITION: &str = "KubeCanaryNetworkProblem";
const SELECTOR: &str = "app.kubernetes.io/name=kube-canary-act";
/// Appends each body to a file, behind the path of its request.
const WEBHOOK: &str = r#"
import http.server, sys
class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        with open(sys.argv[3], "a") as file:
            file.write(f"{self.path} {body}\n")
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Webhook).serve_forever()
"#;

impl Test {
    pub(crate) fn what_is_found_is_acted_upon(&self) {
        let receivers = Receivers::start(&self.cluster);
        self.make_secret();
        self.apply_act(&self.act(&["act"]), "apply");
        self.require_rights(false);
        let act = self.act(&["act", "act-conditions"]);
        self.apply_act(&act, "apply");
        self.require_rights(true);
        let none = BTreeMap::new();
        until("the condition of every node is False", || self.require_conditions(&none));
        let controller = ReadinessController::start(&self.cluster);
        until("no node is tainted", || controller.require_tainted(&[]));
        let pods = self.pods();
        let victim = self.zones.keys().next_back().expect("there are nodes").clone();
        let problem = BTreeMap::from([(victim.clone(), "PacketLoss".to_owned())]);

        let senders = pods.iter().filter(|(node, _)| **node != victim).map(|(_, pod)| pod);
        let (begun, fault) =
            (Instant::now(), IngressLoss::of_three_tenths(&self.cluster, &pods[&victim].name, senders));
        until("the condition of the node is True", || self.require_conditions(&problem));
        eprintln!("  {:>5.1} s  after the fault began", begun.elapsed().as_secs_f64());
        until("the node alone is tainted", || controller.require_tainted(&[&victim]));
        until("doctor shows the condition", || self.doctor_shows(&pods, &victim));
        until("an Event of the node", || self.has_event(&victim, "NetworkProblem"));
        until("Alertmanager has notified its receiver", || receivers.has_notified("firing"));
        self.cluster.kubectl(&["delete", "pod", "--selector", SELECTOR]).unwrap();
        self.until_over(Duration::from_secs(30), "act is another process", &problem);
        let ended = Instant::now();
        drop(fault);
        until("the condition of every node is False", || self.require_conditions(&none));
        eprintln!("  {:>5.1} s  after the fault ended", ended.elapsed().as_secs_f64());
        until("no node is tainted", || controller.require_tainted(&[]));
        until("an Event of its end", || self.has_event(&victim, "NetworkProblemEnded"));
        until("Alertmanager has told its receiver of the end", || receivers.has_notified("resolved"));
        receivers.have_each_message_once(&victim);

        // A node that sees both halves: without it, the larger half is right about the smaller one.
        let nodes: Vec<&String> = self.zones.keys().collect();
        let fault = Cut::around(&self.cluster, &[&pods[nodes[0]], &pods[nodes[1]]], &nodes[2..4]);
        self.until_over(LONG, "two nodes and two others are cut off from each other", &none);
        drop(fault);
        let fault = IngressLoss::everywhere(&self.cluster, &pods.values());
        let away = ApiAway::start(&self.cluster);
        std::thread::sleep(Duration::from_secs(30));
        drop(away);
        self.until_over(LONG, "2 % are lost everywhere, and the API server is back", &none);
        drop(fault);
        self.cluster.kubectl(&["rollout", "restart", "daemonset/kube-canary"]).unwrap();
        let pods = self.until_all_are_new(&pods, || {
            self.require_conditions(&none).unwrap();
            Ok(())
        });
        let judges = until("the judges", || self.judges(&pods));
        for judge in &judges[..2] {
            self.cluster.kubectl(&["delete", "pod", &pods[judge].name, "--wait=false"]).unwrap();
        }
        self.until_over(LONG, "two judges of new agents are gone", &none);

        self.cluster.kubectl(&["exec", "deployment/kube-canary-act", "--", "/kube-canary", "act", "--remove"]).unwrap();
        until("a node without the condition is not tainted", || controller.require_tainted(&[]));
        self.apply_act(&act, "delete");
        let left = self.conditions().unwrap();
        assert!(left.is_empty(), "conditions are left behind: {left:?}");
    }

    /// Requires that agents may read `EndpointSlices` and that act may do what docs/act.md says,
    /// and neither may do more than any other account beside it.
    fn require_rights(&self, has_conditions: bool) {
        for namespace in NAMESPACES {
            let is_own = namespace == NAMESPACE;
            let slices = ["get", "list", "watch"].map(|verb| format!("discovery.k8s.io/endpointslices {verb}"));
            let agents: BTreeSet<String> = slices.into_iter().filter(|_| is_own).collect();
            assert_eq!(rights(&self.cluster, "kube-canary", namespace), agents, "agents in {namespace}");
            let mut act = vec!["/nodes get"];
            if has_conditions {
                act.push("/nodes/status patch");
            }
            if namespace != "kube-system" {
                act.extend(["/events create", "/events patch"]);
            }
            if is_own {
                act.extend(["coordination.k8s.io/leases create", "coordination.k8s.io/leases get kube-canary-act"]);
                act.extend(["coordination.k8s.io/leases update kube-canary-act", "apps/daemonsets get kube-canary"]);
            }
            let act: BTreeSet<String> = act.into_iter().map(str::to_owned).collect();
            assert_eq!(rights(&self.cluster, "kube-canary-act", namespace), act, "act in {namespace}");
        }
    }

    /// Succeeds if `doctor`, in the pod of any agent, shows the condition and what was sent.
    fn doctor_shows(&self, pods: &BTreeMap<String, Pod>, node: &str) -> Result<(), String> {
        let pod = pods.values().next().expect("there are agents");
        let said = self.cluster.kubectl_with_input(&["exec", &pod.name, "--", "/kube-canary", "doctor"], "")?;
        let text = String::from_utf8_lossy(&said.stdout);
        let condition = format!("\n    {node} has {CONDITION}=True (PacketLoss) since ");
        let is_there = ["\nAct: acts; ", " sent", &condition].iter().all(|part| text.contains(part));
        if is_there && said.status.code() == Some(1) { Ok(()) } else { Err(format!("{said:?}")) }
    }

    /// Returns the shipped components, with this image and the receivers.
    fn act(&self, components: &[&str]) -> String {
        let directory = Directory::new("act");
        let at = directory.0.display();
        process::stdout(Command::new("cp").args(["-r", DEPLOY, &at.to_string()])).unwrap();
        let shipped = ACT.lines().find_map(|line| line.trim().strip_prefix("image: ")).expect("it names an image");
        let shipped = shipped.rsplit_once(':').expect("a tag").0;
        let (name, tag) = self.image.rsplit_once(':').expect("the image has a tag");
        let components: Vec<_> = components.iter().map(|name| format!("deploy/components/{name}")).collect();
        let components = components.join(", ");
        let kustomization = format!(
            r#"
components: [{components}]
images: [{{name: {shipped}, newName: {name}, newTag: "{tag}"}}]
patches:
  - target: {{kind: Deployment}}
    patch: |-
      - {{op: add, path: /spec/template/spec/volumes, value: [{{name: receivers, secret: {{secretName: act}}}}]}}
      - op: add
        path: /spec/template/spec/containers/0/volumeMounts
        value: [{{name: receivers, mountPath: /etc/act, readOnly: true}}]
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: {{name: KUBE_CANARY_WEBHOOK_URL_FILE, value: /etc/act/webhook}}
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: {{name: KUBE_CANARY_ALERTMANAGER_URL, value: "http://{RECEIVERS}:9093"}}
"#
        );
        std::fs::write(directory.0.join("kustomization.yaml"), kustomization).unwrap();
        self.cluster.kubectl(&["kustomize", &at.to_string()]).unwrap()
    }

    fn make_secret(&self) {
        let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "act", "namespace": NAMESPACE},
            "stringData": {"webhook": format!("http://{RECEIVERS}:8081/webhook")}});
        self.apply_act(&secret.to_string(), "apply");
    }

    fn apply_act(&self, manifest: &str, verb: &str) {
        // Some of it belongs to the namespace `default`.
        let done = self.cluster.kubectl_with_input(&[verb, "--namespace=", "--filename", "-"], manifest).unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && !said.contains("Warning"), "kubectl {verb}: {said}");
    }

    /// Returns status and reason of our condition by node. A node without it is left out.
    pub(crate) fn conditions(&self) -> Result<BTreeMap<String, (String, String)>, String> {
        let nodes = self.cluster.json(&["get", "nodes"])?;
        let of = |node: &Value| {
            let all = node["status"]["conditions"].as_array()?;
            let ours = all.iter().find(|condition| condition["type"] == CONDITION)?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            Some((text(&node["metadata"]["name"]), (text(&ours["status"]), text(&ours["reason"]))))
        };
        Ok(items(&nodes).filter_map(of).collect())
    }

    /// Succeeds if these nodes have the condition, for these reasons, and all others do not. Fails
    /// the test if any other node has it.
    pub(crate) fn require_conditions(&self, problems: &BTreeMap<String, String>) -> Result<(), String> {
        let now = self.conditions()?;
        let expected = |node: &String| match problems.get(node) {
            Some(reason) => ("True".to_owned(), reason.clone()),
            None => ("False".to_owned(), "NoNetworkProblem".to_owned()),
        };
        // While a fault ends, its node still has the condition.
        let bad: BTreeSet<&String> =
            now.iter().filter(|(_, (status, _))| status != "False").map(|(name, _)| name).collect();
        let victim = self.zones.keys().next_back();
        assert!(bad.iter().all(|name| Some(*name) == victim), "a node has the condition for nothing: {now:?}");
        let is_done = now.len() == self.zones.len() && now.iter().all(|(node, found)| *found == expected(node));
        if is_done { Ok(()) } else { Err(format!("{now:?}")) }
    }

    /// Waits for this long, in which the conditions do not change.
    fn until_over(&self, lasts: Duration, what: &str, problems: &BTreeMap<String, String>) {
        let begun = Instant::now();
        until(&format!("{} s in which {what}", lasts.as_secs()), || {
            let now = self.require_conditions(problems);
            assert!(now.is_ok(), "{what}: a condition has changed: {now:?}");
            let left = lasts.saturating_sub(begun.elapsed());
            if left.is_zero() { Ok(()) } else { Err(format!("{left:?} to go")) }
        });
    }

    fn has_event(&self, node: &str, reason: &str) -> Result<(), String> {
        let selector = format!("involvedObject.kind=Node,involvedObject.name={node},reason={reason}");
        let events = self.cluster.json(&["get", "events", "--namespace", "default", "--field-selector", &selector])?;
        let described = self.cluster.kubectl(&["describe", "node", node])?;
        let is_there = items(&events).count() == 1 && described.contains(&format!(" {reason} "));
        if is_there { Ok(()) } else { Err(format!("{events}\n{described}")) }
    }
}

/// A webhook, and Alertmanager with another one as its receiver.
struct Receivers {
    directory: Directory,
    _programs: [Background; 2],
}

impl Receivers {
    fn start(cluster: &Cluster) -> Self {
        let directory = Directory::new("receivers");
        let path = |name: &str| directory.path(name);
        let config = format!(
            "route: {{receiver: people, group_by: [...], group_wait: 1s, group_interval: 1s, repeat_interval: 4h}}\n\
             receivers: [{{name: people, webhook_configs: [{{url: 'http://{RECEIVERS}:8081/alertmanager'}}]}}]\n"
        );
        std::fs::write(path("config.yaml"), config).unwrap();
        std::fs::write(path("webhook.py"), WEBHOOK).unwrap();
        let webhook = ["python3", "-B", &path("webhook.py"), RECEIVERS, "8081", &path("received")];
        let alertmanager = [
            "prometheus-alertmanager",
            &format!("--config.file={}", path("config.yaml")),
            &format!("--storage.path={}", path("data")),
            &format!("--web.listen-address={RECEIVERS}:9093"),
            "--cluster.listen-address=",
        ];
        let programs = [&webhook[..], &alertmanager[..]].map(|program| cluster.start_on_node("cp", program).unwrap());
        Self { directory, _programs: programs }
    }

    /// Returns what arrived at a path, in order.
    fn received(&self, path: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.0.join("received")).unwrap_or_default();
        let bodies = text.lines().filter_map(|line| line.strip_prefix(path));
        bodies.map(|body| serde_json::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}"))).collect()
    }

    fn has_notified(&self, status: &str) -> Result<(), String> {
        let all = self.received("/alertmanager");
        let count = all.iter().filter(|notification| notification["status"] == status).count();
        if count > 0 { Ok(()) } else { Err(format!("{all:?}")) }
    }

    /// Requires one notification of the beginning and one of the end, from Alertmanager and from
    /// act: what act repeats after its restart has the id of the first.
    fn have_each_message_once(&self, node: &str) {
        let statuses: Vec<Value> = self.received("/alertmanager").iter().map(|it| it["status"].clone()).collect();
        assert_eq!(statuses, ["firing", "resolved"]);
        let ids = |phase: &str| {
            let messages = self.received("/webhook");
            let of = messages.iter().filter(|message| message["phase"] == phase);
            of.map(|message| (message["id"].to_string(), message["verdict"]["subject"].to_string())).collect()
        };
        let (begun, ended): (BTreeSet<_>, BTreeSet<_>) = (ids("begin"), ids("end"));
        let is_of_node = |(_, subject): &(String, String)| *subject == format!("\"{node}\"");
        assert!(
            begun.len() == 1 && ended.len() == 1 && begun.iter().chain(&ended).all(is_of_node),
            "{begun:?} {ended:?}"
        );
    }
}
