//! The checks of an agent, as a part of the work that its HTTP workers do beside their connections.

use std::sync::{Arc, PoisonError};

use crate::checks::{self, Attempt, CheckPlan, CheckResults, CheckSpec, ChecksConfig, ChecksFile, DueAttempt};
use crate::discovery::DiscoverySource;
use crate::exposition::View;
use crate::http::{Background, Reply, Routes};
use crate::mesh::MeshRoutes;
use crate::units::Nanos;

/// The routes of the mesh, and the checks as the last part of the work beside them.
pub struct AgentRoutes {
    mesh: MeshRoutes,
    view: Arc<View>,
    checks: ChecksConfig,
    source: DiscoverySource,
}

impl AgentRoutes {
    /// Makes routes with the checks beside them. The defaults follow from the source of the
    /// peers.
    pub fn new(mesh: MeshRoutes, view: Arc<View>, checks: ChecksConfig, source: DiscoverySource) -> Self {
        Self { mesh, view, checks, source }
    }
}

impl Routes for AgentRoutes {
    fn route(&self, path: &str, accept: &str) -> Reply {
        self.mesh.route(path, accept)
    }

    fn background(&self, part: usize) -> Option<Background> {
        match part {
            1 => {
                let plan = CheckPlan {
                    list: ChecksFile::new(self.checks.clone(), &self.source),
                    rate: self.checks.rate,
                    authorities: self.checks.authorities.clone(),
                    node: self.view.node.clone(),
                };
                Some(Box::pin(checks::run(plan, ViewResults(Arc::clone(&self.view)))))
            }
            _ => self.mesh.background(part),
        }
    }
}

struct ViewResults(Arc<View>);

impl CheckResults for ViewResults {
    fn replace(&self, specs: &[CheckSpec]) {
        self.0.statistics.checks().replace(specs);
    }

    fn record(&self, due: DueAttempt, servers: usize, now: Nanos, attempt: &Attempt) {
        self.0.statistics.checks().record(due, servers, now, attempt);
    }

    fn nodes(&self) -> Option<u32> {
        let members = self.0.directory.read().unwrap_or_else(PoisonError::into_inner).mesh().members;
        (members > 0).then_some(members)
    }
}
