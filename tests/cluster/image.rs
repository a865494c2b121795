//! The image under test, and the one of an earlier revision: the static release build of each, as
//! cargo makes it on this machine, packed with what the last stage of its Dockerfile says. So no
//! container engine is needed. `.ci/full image` builds the Dockerfile itself.
//!
//! - `KUBE_CANARY_TEST_BINARY` names a static program for the image, which is then not built.
//! - `KUBE_CANARY_TEST_IMAGE` names an image to test as it is, which is not built. A cluster
//!   without a command to load images must be able to pull it.
//! - `KUBE_CANARY_TEST_BEFORE` names the git revision from which the test upgrades. Without it no
//!   upgrade is tried. Its binary is kept beside the programs of the cluster.
//! - `KUBE_CANARY_TEST_IMAGE_BEFORE` names an image of that revision, which is not built either.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::directory::Directory;
use crate::process;

const REVISION_BEFORE: &str = "KUBE_CANARY_TEST_BEFORE";
const IMAGE_BEFORE: &str = "KUBE_CANARY_TEST_IMAGE_BEFORE";

const PROGRAM: &str = "kube-canary";

/// An image that the cluster has or can pull.
pub struct Image {
    /// The image name for the manifest.
    pub name: String,
    /// The program that it is made of, and the Dockerfile that says the rest.
    built: Option<(PathBuf, String)>,
}

impl Image {
    /// Builds the program, or returns the image that the environment names.
    pub fn get(cluster: &Cluster) -> Self {
        Self::given_or_built(cluster, "KUBE_CANARY_TEST_IMAGE", "kube-canary:cluster-test", || {
            let named = std::env::var_os("KUBE_CANARY_TEST_BINARY").map(PathBuf::from);
            let program = named.unwrap_or_else(|| build(repository(), &repository().join("target"), None));
            (program, std::fs::read_to_string(repository().join("Dockerfile")).unwrap())
        })
    }

    fn given_or_built(cluster: &Cluster, variable: &str, tag: &str, build: impl FnOnce() -> (PathBuf, String)) -> Self {
        let given = std::env::var(variable).ok();
        assert!(
            given.is_some() || cluster.has_command(),
            "this cluster has no command to load an image: push one and name it by {variable}, or set \
             KUBE_CANARY_TEST_CLUSTER"
        );
        if let Some(name) = given {
            eprintln!("NOT BUILT: {variable}={name} is used as it is");
            return Self { name, built: None };
        }
        eprintln!("build the program of {tag}");
        Self { name: tag.to_owned(), built: Some(build()) }
    }

    /// Loads the image onto the cluster's nodes, if it is one that the test has built.
    pub fn load(&self, cluster: &Cluster) {
        if let Some((program, dockerfile)) = &self.built {
            load(cluster, program, PROGRAM, &self.name, &config_of(dockerfile));
        }
    }
}

/// The manifest and the image of an earlier revision, from which the test upgrades.
pub struct Earlier {
    pub manifest: String,
    pub image: Image,
}

impl Earlier {
    /// Builds the program of the revision that the environment names, if it names one.
    pub fn get(cluster: &Cluster) -> Option<Self> {
        let Ok(revision) = std::env::var(REVISION_BEFORE) else {
            let image = std::env::var_os(IMAGE_BEFORE);
            assert!(image.is_none(), "{IMAGE_BEFORE} needs {REVISION_BEFORE}: the revision whose manifest is applied");
            return None;
        };
        let file = |path: &str| process::stdout(git().arg("show").arg(format!("{revision}:{path}"))).unwrap();
        let tag = "kube-canary:cluster-test-before";
        let image = Image::given_or_built(cluster, IMAGE_BEFORE, tag, || (earlier(&revision), file("Dockerfile")));
        Some(Self { manifest: file("deploy/daemonset.yaml"), image })
    }
}

/// Packs a static program as an image of one layer, where it is the file `path` of the root, in the
/// form that `docker save` writes, and imports it on every node.
pub fn load(cluster: &Cluster, program: &Path, path: &str, name: &str, config: &Value) {
    let image = Directory::new("image");
    let layer = image.path("layer.tar");
    std::fs::copy(program, image.path(path)).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--mode=755", "-C"]).arg(&image.0).args(["-cf", &layer, path]);
    process::stdout(&mut tar).unwrap();
    let sum = process::stdout(Command::new("sha256sum").arg(&layer)).unwrap();
    let sum = sum.split_whitespace().next().expect("sha256sum prints a sum");
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({"architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{sum}")]}});
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    std::fs::write(image.path("config.json"), config.to_string()).unwrap();
    std::fs::write(image.path("manifest.json"), manifest.to_string()).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&image.0).args(["-cf", &image.path("image.tar"), "manifest.json", "config.json", "layer.tar"]);
    process::stdout(&mut tar).unwrap();
    cluster.load(Path::new(&image.path("image.tar")));
}

/// The configuration of an image, from the last stage of a Dockerfile that copies one program to
/// the root.
fn config_of(dockerfile: &str) -> Value {
    let (_, stage) = dockerfile.rsplit_once("\nFROM scratch\n").expect("the last stage begins with nothing");
    let mut config = Map::new();
    for (instruction, rest) in stage.lines().filter_map(|line| line.split_once(' ')) {
        match instruction {
            "#" => {}
            "COPY" => assert!(rest.ends_with(&format!(" /{PROGRAM}")), "{rest}"),
            "USER" => drop(config.insert("User".into(), rest.into())),
            "EXPOSE" => {
                let port = |port: &str| if port.contains('/') { port.to_owned() } else { format!("{port}/tcp") };
                let ports: Map<_, _> = rest.split(' ').map(|it| (port(it), json!({}))).collect();
                config.insert("ExposedPorts".into(), ports.into());
            }
            "ENTRYPOINT" => drop(config.insert("Entrypoint".into(), serde_json::from_str(rest).unwrap())),
            _ => panic!("Dockerfile: {instruction} in the last stage is not translated to an image"),
        }
    }
    config.into()
}

/// Builds the static program of the sources in a directory, and returns its path.
fn build(source: &Path, target: &Path, revision: Option<&str>) -> PathBuf {
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--release", "--bin", PROGRAM, "--target", &triple]);
    cargo.current_dir(source).env("CARGO_TARGET_DIR", target);
    if let Some(revision) = revision {
        cargo.env("KUBE_CANARY_REVISION", revision);
    }
    process::stdout(&mut cargo).unwrap();
    target.join(triple).join("release").join(PROGRAM)
}

/// The program of a git revision. It is built once, because its sources never change.
fn earlier(revision: &str) -> PathBuf {
    let commit = process::stdout(git().args(["rev-parse", "--verify", &format!("{revision}^{{commit}}")])).unwrap();
    let directory = programs().join("earlier").join(commit.trim());
    let program = directory.join(PROGRAM);
    if !program.exists() {
        let work = Directory::new("earlier");
        let archive = work.path("sources.tar");
        process::stdout(git().args(["archive", "--output", &archive, commit.trim()])).unwrap();
        process::stdout(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&work.0)).unwrap();
        let built = build(&work.0, &work.0.join("target"), Some(&commit[..12]));
        std::fs::create_dir_all(&directory).unwrap();
        // In two steps, so that a run which is killed leaves no half of a program.
        std::fs::copy(built, directory.join("copy")).unwrap();
        std::fs::rename(directory.join("copy"), &program).unwrap();
    }
    program
}

/// Where tests/cluster/tool/cluster keeps what it has compiled.
fn programs() -> PathBuf {
    let named = std::env::var_os("KUBE_CANARY_CLUSTER_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| std::env::home_dir().expect("a home directory").join(".cache/kube-canary/cluster"))
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository());
    git
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
