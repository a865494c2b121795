//! The cluster under test: the one that `KUBECONFIG` names, or one that a command makes and always
//! takes down.
//!
//! The command is tests/cluster/tool/cluster, or the one in `KUBE_CANARY_TEST_CLUSTER`. Its verbs
//! are:
//!
//! - `up N`, `load IMAGE.tar`, `kubectl …`, `kubeconfig` and `down`
//! - `pod POD CMD…`: in the pod's network namespace, with the Kubernetes namespace in `$NS`
//! - `on NODE CMD…`: in the node's network namespace
//! - `api-stop` and `api-start`: the API server
//! - `dns-scale N`, `dns-delay SECONDS`: the servers of the DNS, and how long the second one waits
//! - `proxy-stop NODE`, `proxy-start NODE`: kube-proxy with its rules
//!
//! Faults need `pod`, `on` and those below, so `KUBECONFIG` alone cannot run the whole test. If
//! both variables are set, the named cluster is used and not taken down.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::process;

/// The name of everything in deploy/daemonset.yaml.
pub const NAMESPACE: &str = "kube-canary";
const NICE: [&str; 3] = ["nice", "-n", "5"];
const COMMAND: &str = "KUBE_CANARY_TEST_CLUSTER";
const OWN_COMMAND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/tool/cluster");

/// A running cluster, with the means to run commands in it.
pub struct Cluster {
    command: Option<String>,
    kubeconfig: Option<String>,
}

impl Cluster {
    /// The cluster that the environment names, or one of our own, which is not running yet.
    pub fn from_environment() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (command, kubeconfig) = (set(COMMAND), set("KUBECONFIG"));
        let ours = || kubeconfig.is_none().then(|| format!("'{OWN_COMMAND}'"));
        Self { command: command.or_else(ours), kubeconfig }
    }

    /// Starts a cluster of `nodes` nodes, unless one is given.
    ///
    /// # Panics
    /// If the command to start it fails.
    pub fn up(&self, nodes: usize) {
        if self.is_ours() {
            eprintln!("take down what a killed run may have left, then up {nodes}");
            self.tool(&["down"]).unwrap();
            self.tool(&["up", &nodes.to_string()]).unwrap();
        }
    }

    fn is_ours(&self) -> bool {
        self.kubeconfig.is_none()
    }

    /// Whether the test may inject faults and load images.
    pub fn has_command(&self) -> bool {
        self.command.is_some()
    }

    /// Imports a `docker save` archive on every node.
    pub fn load(&self, archive: &Path) {
        self.tool(&["load", archive.to_str().expect("a path of the test's own")]).unwrap();
    }

    /// Runs kubectl in the agents' namespace and returns its stdout.
    ///
    /// # Errors
    /// As [`process::stdout`].
    pub fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        process::stdout(self.kubectl_command().args(args))
    }

    /// Runs kubectl and parses its JSON.
    ///
    /// # Errors
    /// As [`process::stdout`], or if the output is not JSON.
    pub fn json(&self, args: &[&str]) -> Result<Value, String> {
        serde_json::from_str(&self.kubectl(&[args, &["-o", "json"]].concat())?)
            .map_err(|error| format!("{args:?}: {error}"))
    }

    /// Runs kubectl with `input` as stdin. The caller judges its exit code and stderr.
    ///
    /// # Errors
    /// As [`process::output`].
    pub fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<Output, String> {
        process::output(self.kubectl_command().args(args), input)
    }

    /// Runs a program in a pod's network namespace.
    ///
    /// # Errors
    /// As [`process::stdout`].
    pub fn in_pod(&self, pod: &str, args: &[&str]) -> Result<String, String> {
        process::stdout(self.onlooker_command().env("NS", NAMESPACE).args(["pod", pod]).args(args))
    }

    /// The same, but the caller judges the exit code.
    ///
    /// # Errors
    /// As [`process::output`].
    pub fn in_pod_output(&self, pod: &str, args: &[&str]) -> Result<Output, String> {
        process::output(self.onlooker_command().env("NS", NAMESPACE).args(["pod", pod]).args(args), "")
    }

    /// Starts a program in a pod's network namespace. It ends when the returned value is dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_in_pod(&self, pod: &str, args: &[&str]) -> Result<process::Background, String> {
        process::Background::start(self.tool_command().env("NS", NAMESPACE).args(["pod", pod]).args(args))
    }

    /// Runs a program in a node's network namespace.
    ///
    /// # Errors
    /// As [`process::stdout`].
    pub fn on_node(&self, node: &str, args: &[&str]) -> Result<String, String> {
        self.tool(&[&["on", node], args].concat())
    }

    /// Starts a program in a node's network namespace. It ends when the returned value is dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_on_node(&self, node: &str, args: &[&str]) -> Result<process::Background, String> {
        process::Background::start(self.onlooker_command().args(["on", node]).args(args))
    }

    /// Runs a verb of the cluster's command that injects a fault or undoes it.
    ///
    /// # Errors
    /// As [`process::stdout`].
    pub fn verb(&self, args: &[&str]) -> Result<String, String> {
        self.tool(args)
    }

    /// Kills the API server's process.
    ///
    /// # Errors
    /// As [`process::stdout`].
    pub fn stop_api(&self) -> Result<String, String> {
        self.tool(&["api-stop"])
    }

    /// Starts the API server again, and waits until it is ready.
    ///
    /// # Errors
    /// As [`process::stdout`].
    pub fn start_api(&self) -> Result<String, String> {
        self.tool(&["api-start"])
    }

    fn kubectl_command(&self) -> Command {
        // A cluster of the command may be reachable only from inside it, by the command's kubectl.
        let own = match &self.kubeconfig {
            None => true,
            Some(given) => self.has_command() && self.tool(&["kubeconfig"]).is_ok_and(|path| path.trim() == given),
        };
        let mut command = if own {
            self.onlooker_command()
        } else {
            let mut nice = Command::new(NICE[0]);
            nice.args(&NICE[1..]);
            nice
        };
        command.args(["kubectl", "--namespace", NAMESPACE]);
        command
    }

    fn tool(&self, args: &[&str]) -> Result<String, String> {
        process::stdout(self.tool_command().args(args))
    }

    fn tool_command(&self) -> Command {
        self.command_after("")
    }

    /// A command for observers. It takes no CPU from the agents under test, which run
    /// on the same machine.
    fn onlooker_command(&self) -> Command {
        self.command_after(&NICE.join(" "))
    }

    fn command_after(&self, prefix: &str) -> Command {
        let command = self.command.as_deref().unwrap_or_else(|| panic!("{COMMAND} is not set"));
        // Through a shell: the variable holds a command, which may have arguments of its own.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{prefix} {command} \"$@\""), command]);
        shell
    }

    fn explain(&self) {
        for args in [
            &["get", "nodes,pods,endpointslices", "-o", "wide"][..],
            &["describe", "daemonset,pods"],
            &["logs", "--selector", "app.kubernetes.io/name=kube-canary", "--prefix", "--tail", "40"],
        ] {
            eprintln!("--- kubectl {}", args.join(" "));
            eprintln!("{}", self.kubectl(args).unwrap_or_else(|error| error));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.explain();
        }
        if self.is_ours()
            && let Err(error) = self.tool(&["down"])
        {
            eprintln!("the cluster could not be taken down: {error}");
        }
    }
}
