//! Accounts and sessions through their front door.
mod accounts;
mod attacks;
mod avatars;
mod bounds;
mod buckets;
mod devices;
mod enrolment;
mod factors;
mod kept;
mod linking;
mod lockout;
mod mail;
mod nodes;
mod oidc;
mod one_tap;
mod passkeys;
mod people;
mod policy;
mod providers;
mod recipients;
mod restored;
mod social;
mod strength;
mod tidy;
mod trusted;

use crate::testing as actors;
