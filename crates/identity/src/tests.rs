//! Accounts and sessions through their front door.
mod accounts;
mod actors;
mod attacks;
mod avatars;
mod bounds;
mod buckets;
mod devices;
mod factors;
mod nodes;
mod passkeys;
