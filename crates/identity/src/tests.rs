//! Accounts and sessions through their front door.
mod accounts;
mod actors;
mod attacks;
mod bounds;
mod devices;
mod factors;
mod nodes;
mod passkeys;
