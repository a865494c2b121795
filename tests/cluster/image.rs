//! The image under test, and the one of an earlier revision. Each is built by the Dockerfile of its
//! revision, without a network in the build.
//!
//! - `KUBE_CANARY_TEST_DOCKER` names the Docker client (`docker`).
//! - `KUBE_CANARY_TEST_BUILDER` names the builder image (made by tests/cluster/builder-image).
//! - `KUBE_CANARY_TEST_IMAGE` names an image to test as it is, which is not built. A cluster
//!   without a command to load images must be able to pull it.
//! - `KUBE_CANARY_TEST_BEFORE` names the git revision from which the test upgrades. Without it no
//!   upgrade is tried.
//! - `KUBE_CANARY_TEST_IMAGE_BEFORE` names an image of that revision, which is not built either.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::Cluster;
use crate::process;

const REVISION_BEFORE: &str = "KUBE_CANARY_TEST_BEFORE";
const IMAGE_BEFORE: &str = "KUBE_CANARY_TEST_IMAGE_BEFORE";

/// An image in the Docker Engine, or one that the cluster can pull.
pub struct Image {
    /// The image name for the manifest.
    pub name: String,
}

impl Image {
    /// Builds the image, or returns the one that the environment names.
    pub fn get(cluster: &Cluster) -> Self {
        Self::given_or_built(cluster, "KUBE_CANARY_TEST_IMAGE", "kube-canary:cluster-test", || repository().to_owned())
    }

    fn given_or_built(cluster: &Cluster, variable: &str, tag: &str, source: impl FnOnce() -> PathBuf) -> Self {
        std::fs::create_dir_all(scratch()).unwrap();
        let given = std::env::var(variable).ok();
        assert!(
            given.is_some() || cluster.has_command(),
            "this cluster has no command to load an image: push one and name it by {variable}, or set \
             KUBE_CANARY_TEST_CLUSTER"
        );
        if let Some(name) = given {
            eprintln!("NOT BUILT: {variable}={name} is used as it is");
            return Self { name };
        }
        eprintln!("build the image {tag}");
        build(&source(), tag);
        Self { name: tag.to_owned() }
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

/// The manifest and the image of an earlier revision, from which the test upgrades.
pub struct Earlier {
    pub manifest: String,
    pub image: Image,
}

impl Earlier {
    /// Builds the image of the revision that the environment names, if it names one.
    pub fn get(cluster: &Cluster) -> Option<Self> {
        let Ok(revision) = std::env::var(REVISION_BEFORE) else {
            let image = std::env::var_os(IMAGE_BEFORE);
            assert!(image.is_none(), "{IMAGE_BEFORE} needs {REVISION_BEFORE}: the revision whose manifest is applied");
            return None;
        };
        let manifest = process::stdout(git().arg("show").arg(format!("{revision}:deploy/daemonset.yaml"))).unwrap();
        let tag = "kube-canary:cluster-test-before";
        let image = Image::given_or_built(cluster, IMAGE_BEFORE, tag, || sources_of(&revision));
        Some(Self { manifest, image })
    }
}

fn build(source: &Path, tag: &str) {
    process::stdout(docker().arg("info")).expect("a Docker Engine is needed to build the image");
    let builder = std::env::var("KUBE_CANARY_TEST_BUILDER").unwrap_or_else(|_| {
        let script = repository().join("tests/cluster/builder-image");
        process::stdout(&mut Command::new(script)).expect("the builder image").trim().to_owned()
    });
    let context = context(source);
    process::stdout(
        docker()
            .env("DOCKER_BUILDKIT", "1")
            .args(["build", "--network=host", "--tag", tag, "--build-arg"])
            .arg(format!("BUILDER={builder}"))
            .arg(&context),
    )
    .unwrap();
}

/// A copy of what .dockerignore admits of the repository at `source`, with the crates vendored
/// beside it. `cargo vendor` in the repository itself would leave thousands of files there.
fn context(source: &Path) -> PathBuf {
    let context = empty_directory("context");
    let ignore = std::fs::read_to_string(source.join(".dockerignore")).unwrap();
    let wanted = ignore.lines().filter_map(|line| line.strip_prefix('!')).chain(["Dockerfile", ".dockerignore"]);
    for name in wanted.filter(|name| source.join(name).exists() && *name != "vendor") {
        let mut copy = Command::new("cp");
        process::stdout(copy.current_dir(source).args(["-r", "--parents", name]).arg(&context)).unwrap();
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut vendor = Command::new(cargo);
    vendor.args(["vendor", "--quiet", "--locked", "--manifest-path"]).arg(source.join("Cargo.toml"));
    // This adds the sources of the shim's mallocs: the Dockerfile builds any allocator from this
    // context.
    vendor.arg("--sync").arg(source.join("c-shim/mallocs/Cargo.toml"));
    process::stdout(vendor.arg(context.join("vendor"))).unwrap();
    context
}

/// The files of a git revision.
fn sources_of(revision: &str) -> PathBuf {
    let (directory, archive) = (empty_directory("before"), scratch().join("before.tar"));
    process::stdout(git().args(["archive", "--output"]).arg(&archive).arg(revision)).unwrap();
    process::stdout(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&directory)).unwrap();
    directory
}

fn empty_directory(name: &str) -> PathBuf {
    let directory = scratch().join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository());
    git
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
