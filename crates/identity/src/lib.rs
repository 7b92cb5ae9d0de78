//! Authentication: sign-up, sign-in, recovery, second factors, passkeys, the user's own account, the OAuth and OpenID
//! Connect provider, and discovery documents.
mod account;
mod asked;
mod captcha;
pub mod destination;
pub mod device;
mod discovery;
pub mod events;
pub mod factors;
pub mod first_owner;
pub mod invite;
pub mod magic_link;
mod mails;
pub mod oauth;
mod orgs;
mod passkeys;
pub mod password;
pub mod people;
pub mod platform;
pub mod policy;
mod proof;
pub mod register;
mod session;
pub mod social;
mod tidy;
mod trusted;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
    http::Routes,
    jobs::Jobs,
};

use tenancy::once::Purpose;

pub use account::Export;
pub use social::names as providers;

/// The longest body of the routes that need no sign-in.
const BODY: usize = 256 * 1024;

const PURPOSES: &[Purpose] = &[
    register::VERIFY_EMAIL,
    password::RESET_PASSWORD,
    people::ACCOUNT_INVITE,
    magic_link::MAGIC_LINK,
    passkeys::SIGN_IN,
];

pub const PART: Part = Part {
    settings: &[Listed::of::<oauth::Settings>(), Listed::of::<social::Settings>(), Listed::of::<policy::Settings>()],
    feature,
};

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("auth")
        .and(register::routes())
        .and(password::routes())
        .and(magic_link::routes())
        .and(session::routes())
        .and(trusted::routes())
        .and(account::routes())
        .and(orgs::routes())
        .and(invite::routes())
        .and(factors::routes())
        .and(passkeys::routes())
        .and(device::routes())
        .and(oauth::routes(config))
        .and(captcha::routes())
        .and(platform::routes())
        .and(people::routes())
        .and(discovery::routes());
    Feature::new(routes)
        .jobs(Jobs::new().on::<asked::Asked>())
        .declares(tidy::CHORES)
        .declares(events::EVENTS)
        .declares(mails::MAILS)
        .declares(PURPOSES)
        .declares(&[account::AVATARS])
        .declares(&[account::GONE, oauth::GONE, tidy::DEVICE_CODES])
        .declares(tidy::AFTER_RESTORE)
        .start(|janua| {
            Box::pin(async move {
                first_owner::start(&janua)
                    .await
                    .map_err(|error| format!("cannot store the first-owner link: {error}"))
            })
        })
        .own(passkeys::Passkeys::new(config))
        .own(oauth::Silent::default())
        .own(discovery::Metadata::default())
        .and(social::feature())
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
