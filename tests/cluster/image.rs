//! The image under test, built by the repository's own Dockerfile, without a network in the build.
//!
//! - `KUBE_CANARY_TEST_DOCKER` names the Docker client (`docker`).
//! - `KUBE_CANARY_TEST_BUILDER` names the builder image (made by tests/cluster/builder-image).
//! - `KUBE_CANARY_TEST_IMAGE` names an image to test as it is. Then nothing is built. A cluster
//!   without a command to load images must be able to pull it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::Cluster;
use crate::process;

const TAG: &str = "kube-canary:cluster-test";

/// An image in the Docker Engine, or one that the cluster can pull.
pub struct Image {
    /// The image name for the manifest.
    pub name: String,
}

impl Image {
    /// Builds the image, or returns the one that the environment names.
    pub fn get(cluster: &Cluster) -> Self {
        std::fs::create_dir_all(scratch()).unwrap();
        let given = std::env::var("KUBE_CANARY_TEST_IMAGE").ok();
        assert!(
            given.is_some() || cluster.has_command(),
            "this cluster has no command to load an image: push one and name it by KUBE_CANARY_TEST_IMAGE, or set \
             KUBE_CANARY_TEST_CLUSTER"
        );
        if let Some(name) = given {
            eprintln!("NOT BUILT: KUBE_CANARY_TEST_IMAGE={name} is tested as it is");
            return Self { name };
        }
        eprintln!("build the image");
        Self { name: build() }
    }

    /// Loads the image onto the cluster's nodes, if there is a command for it.
    pub fn load(&self, cluster: &Cluster) {
        if cluster.has_command() {
            let archive = scratch().join("image.tar");
            process::stdout(docker().args(["save", "--output"]).arg(&archive).arg(&self.name)).unwrap();
            cluster.load(&archive);
        }
    }
}

fn build() -> String {
    process::stdout(docker().arg("info")).expect("a Docker Engine is needed to build the image");
    let builder = std::env::var("KUBE_CANARY_TEST_BUILDER").unwrap_or_else(|_| {
        let script = repository().join("tests/cluster/builder-image");
        process::stdout(&mut Command::new(script)).expect("the builder image").trim().to_owned()
    });
    let context = context();
    process::stdout(
        docker()
            .env("DOCKER_BUILDKIT", "1")
            .args(["build", "--network=host", "--tag", TAG, "--build-arg"])
            .arg(format!("BUILDER={builder}"))
            .arg(&context),
    )
    .unwrap();
    TAG.to_owned()
}

/// A copy of what .dockerignore admits, with the crates vendored beside it. `cargo vendor` in the
/// repository itself would leave thousands of files there.
fn context() -> PathBuf {
    let context = scratch().join("context");
    if context.exists() {
        std::fs::remove_dir_all(&context).unwrap();
    }
    std::fs::create_dir_all(&context).unwrap();
    let ignore = std::fs::read_to_string(repository().join(".dockerignore")).unwrap();
    let wanted = ignore.lines().filter_map(|line| line.strip_prefix('!')).chain(["Dockerfile", ".dockerignore"]);
    for name in wanted.filter(|name| repository().join(name).exists() && *name != "vendor") {
        let mut copy = Command::new("cp");
        process::stdout(copy.current_dir(repository()).args(["-r", "--parents", name]).arg(&context)).unwrap();
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut vendor = Command::new(cargo);
    vendor.args(["vendor", "--quiet", "--locked", "--manifest-path"]).arg(repository().join("Cargo.toml"));
    // This adds the sources of the shim's mallocs: the Dockerfile builds any allocator from this
    // context.
    vendor.arg("--sync").arg(repository().join("c-shim/mallocs/Cargo.toml"));
    process::stdout(vendor.arg(context.join("vendor"))).unwrap();
    context
}

fn docker() -> Command {
    Command::new(std::env::var_os("KUBE_CANARY_TEST_DOCKER").unwrap_or_else(|| "docker".into()))
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scratch() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster")
}
