//! Accounts and sessions through their front door.
mod accounts;
mod attacks;
mod bounds;
mod devices;
mod factors;
mod nodes;
mod passkeys;

use crate::testing as actors;
