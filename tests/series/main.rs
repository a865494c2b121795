//! The series of a scrape, in all formats. The scrapes are real, of agents whose peers come, go,
//! answer and lose on a scripted clock.

mod checks;
#[path = "../common/exposition.rs"]
mod exposition;
mod growth;
#[path = "../common/leaks.rs"]
mod leaks;
mod mesh;
mod native;
#[path = "../common/protobuf.rs"]
mod protobuf;
mod size;
#[path = "../common/splitmix.rs"]
mod splitmix;
mod zones;
