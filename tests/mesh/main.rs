//! An agent collects reports of others: complete ones, and failures. The collection is the real
//! one, behind the real server. The others are servers that answer as each test sets.

mod agents;
mod collection;
mod domains;
mod failures;
mod hostile;
mod hours;
#[path = "../http_support/mod.rs"]
mod http_support;
mod judged;
mod judges;
mod lists;
mod partial;
