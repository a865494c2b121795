//! The chart with act on a real cluster. `helm uninstall` takes the conditions back by its hook.
//!
//! `KUBE_CANARY_TEST_HELM` names helm. Without it Go builds one, which takes some minutes once.

use std::collections::BTreeMap;
use std::process::Command;

use crate::Test;
use crate::directory::Directory;
use crate::process;
use crate::wait::until;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/kube-canary");
const MODULE: &str = "helm.sh/helm/v3/cmd/helm@v3.22.0";
const RELEASE: &str = "charted";

impl Test {
    pub(crate) fn a_release_leaves_no_condition_behind(&self) {
        let directory = Directory::new("helm");
        let helm = helm(&directory);
        let (repository, tag) = self.image.rsplit_once(':').expect("the image has a tag");
        let (repository, tag) = (format!("image.repository={repository}"), format!("image.tag={tag}"));
        let sets =
            [repository.as_str(), &tag, "image.pullPolicy=IfNotPresent", "act.enabled=true", "act.conditions=true"];
        let mut install = vec!["install", RELEASE, CHART, "--create-namespace"];
        install.extend(sets.iter().flat_map(|value| ["--set", value]));
        self.helm(&helm, &install).unwrap();
        let none = BTreeMap::new();
        until("the condition of every node is False, by the chart", || self.require_conditions(&none));
        self.helm(&helm, &["uninstall", RELEASE, "--wait", "--timeout", "5m"]).unwrap();
        let left = self.conditions().unwrap();
        assert!(left.is_empty(), "conditions are left behind: {left:?}");
        self.cluster.kubectl(&["delete", "namespace", RELEASE, "--wait=false"]).unwrap();
    }

    fn helm(&self, helm: &str, args: &[&str]) -> Result<String, String> {
        let kubeconfig = self.cluster.verb(&["kubeconfig"])?;
        let common = [helm, "--kubeconfig", kubeconfig.trim(), "--namespace", RELEASE];
        self.cluster.on_node("cp", &[&common, args].concat())
    }
}

/// Returns the path of helm.
fn helm(directory: &Directory) -> String {
    if let Ok(given) = std::env::var("KUBE_CANARY_TEST_HELM")
        && !given.is_empty()
    {
        return given;
    }
    let mut go = Command::new("nice");
    go.args(["-n", "19", "go", "install", MODULE]).env("GOBIN", &directory.0).env("CGO_ENABLED", "0");
    process::stdout(&mut go).unwrap();
    directory.path("helm")
}
