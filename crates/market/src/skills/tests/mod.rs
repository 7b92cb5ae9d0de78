//! Skills through the door.
mod actors;
mod agents;
mod machines;
mod packages;
mod publishing;
mod trust;
mod using;
