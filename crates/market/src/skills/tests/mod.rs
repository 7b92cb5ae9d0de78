//! Skills through the door.
mod actors;
mod agents;
mod packages;
mod publishing;
mod trust;
mod using;
