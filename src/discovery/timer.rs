//! Waiting for a moment that may not be set.

use tokio::time::{Instant, sleep_until};

/// Waits until a moment. Without one, it waits for ever.
pub async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
