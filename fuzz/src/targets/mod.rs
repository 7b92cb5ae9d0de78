//! One file for each kind of input.
pub mod archives;
pub mod headers;
pub mod mail;
pub mod plans;
pub mod processor;
pub mod rules;
pub mod scim;
pub mod signatures;
pub mod skill;
pub mod wallets;
