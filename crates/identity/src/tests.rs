//! Accounts and sessions through their front door.
mod accounts;
mod actors;
mod attacks;
mod bounds;
mod devices;
mod factors;
mod linking;
mod nodes;
mod oidc;
mod one_tap;
mod providers;
mod social;
