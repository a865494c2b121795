//! Scrapes within the series budget: real ones, of agents whose peers come, go, lose and are drained on a scripted clock.

#[path = "../common/exposition.rs"]
mod exposition;
mod flapping;
mod further;
#[path = "../common/leaks.rs"]
mod leaks;
mod mesh;
mod size;
#[path = "../common/splitmix.rs"]
mod splitmix;
mod story;
mod worst;
