//! Accounts and sessions through their front door.
mod accounts;
mod attacks;
mod avatars;
mod bounds;
mod buckets;
mod devices;
mod factors;
mod linking;
mod mail;
mod nodes;
mod oidc;
mod one_tap;
mod passkeys;
mod providers;
mod restored;
mod social;

use crate::testing as actors;
