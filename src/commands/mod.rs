//! The commands beside the agent. The agent imports none of them: they have what an agent says over
//! HTTP, or what the system says of processes. [`ping`] and [`demo`] wire the agent's stages in
//! another way. [`act`] alone writes to the API server.

pub mod act;
pub mod demo;
pub mod doctor;
pub mod fleet;
pub mod footprint;
pub mod ping;
