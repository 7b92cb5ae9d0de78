//! Machines, asked from outside.
mod actors;
mod agents;
mod frameworks;
mod mcp;
