//! Limits the number of connections of the workers to the file descriptors that are available.
//!
//! Without this limit, clients could use up every descriptor of the process. Other parts could then
//! open none: a connection to the API server, a DNS query, a file of /proc.

use super::{ServeError, ServeLimits};
use crate::limits::DESCRIPTORS_RESERVED;
use crate::sys::descriptors;

/// File descriptors of a worker besides those of its connections: its event loop, its listening
/// socket, a file of /proc, and a connection that waits for a permit.
const DESCRIPTORS_PER_WORKER: usize = 8;
/// File descriptors of an ordinary connection: the client's, and the one to the agent that is
/// asked for the client.
const DESCRIPTORS_PER_ORDINARY_PLACE: usize = 2;

/// Returns `limits` with at most as many connections as there are descriptors. Raises the soft
/// limit of descriptors as far as needed and possible.
///
/// # Errors
/// [`ServeError::Descriptors`] if a worker could not have one connection of each class.
pub(super) fn available(limits: ServeLimits, workers: usize) -> Result<ServeLimits, ServeError> {
    let limit = descriptors::raise_to(needed(workers, limits.connections, limits.health_connections) as u64);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let fitting = fit(limits, workers, limit)?;
    if fitting.connections < limits.connections || fitting.health_connections < limits.health_connections {
        log::warn!(
            "{limit} file descriptors are enough for {} HTTP connections, {} would need {}: raise the limit \
             of open files (RLIMIT_NOFILE), or use fewer --http-workers",
            workers * (fitting.connections + fitting.health_connections),
            workers * (limits.connections + limits.health_connections),
            needed(workers, limits.connections, limits.health_connections)
        );
    }
    Ok(fitting)
}

/// Number of descriptors that the process needs for this many connections of each worker.
const fn needed(workers: usize, connections: usize, health_connections: usize) -> usize {
    let per_worker = DESCRIPTORS_PER_WORKER + connections * DESCRIPTORS_PER_ORDINARY_PLACE + health_connections;
    DESCRIPTORS_RESERVED + workers * per_worker
}

/// Returns `limits` with the most connections that `descriptors` allow.
fn fit(limits: ServeLimits, workers: usize, descriptors: usize) -> Result<ServeLimits, ServeError> {
    let fits = |connections, health| needed(workers, connections, health) <= descriptors;
    // Health connections keep their share: they must be answered when all others are taken.
    let health = |connections: usize| {
        (limits.health_connections * connections).div_ceil(limits.connections.max(1)).min(limits.health_connections)
    };
    let most = (1..=limits.connections).rev().find(|connections| fits(*connections, health(*connections)));
    match most {
        Some(connections) => Ok(ServeLimits { connections, health_connections: health(connections), ..limits }),
        None => Err(ServeError::Descriptors { available: descriptors, needed: needed(workers, 1, 1) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: usize = 4;

    fn places(descriptors: usize) -> Option<(usize, usize)> {
        let fitting = fit(ServeLimits::default(), WORKERS, descriptors).ok()?;
        Some((fitting.connections, fitting.health_connections))
    }

    #[test]
    fn all_places_of_all_workers_and_the_rest_fit_the_descriptors() {
        let full = ServeLimits::default();
        let whole = needed(WORKERS, full.connections, full.health_connections);
        assert_eq!(places(whole), Some((full.connections, full.health_connections)));
        assert_eq!(places(usize::MAX), places(whole));
        for descriptors in needed(WORKERS, 1, 1)..whole {
            let (connections, health) = places(descriptors).unwrap();
            assert!(connections >= 1 && health >= 1 && connections < full.connections, "{descriptors}");
            assert!(needed(WORKERS, connections, health) <= descriptors, "{descriptors}");
            assert!(needed(WORKERS, connections + 1, health + 1) > descriptors, "{descriptors}: one more would fit");
        }
    }

    #[test]
    fn too_few_descriptors_are_an_error_that_names_how_many_are_needed() {
        let least = needed(WORKERS, 1, 1);
        let error = fit(ServeLimits::default(), WORKERS, least - 1).unwrap_err().to_string();
        assert!(error.contains(&least.to_string()) && error.contains(&(least - 1).to_string()), "{error}");
    }
}
