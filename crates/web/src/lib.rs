//! The pages people see: signing in, saying yes to a client or a device, leaving. They call what the API calls, and draw
//! what it says. Everything works without a script.
mod account;
mod act;
mod authorize;
mod captcha;
mod console;
mod device;
mod elsewhere;
mod first_owner;
mod form;
mod look;
mod me;
mod page;
mod recover;
mod sign_in;
mod sign_out;
mod sign_up;
mod words;

use kernel::{app::Feature, config::Config, http::Routes};

pub fn feature(_: &Config) -> Feature {
    Feature::new(
        Routes::new("pages")
            .and(sign_in::routes())
            .and(sign_up::routes())
            .and(recover::routes())
            .and(elsewhere::routes())
            .and(authorize::routes())
            .and(sign_out::routes())
            .and(device::routes())
            .and(first_owner::routes())
            .and(account::routes())
            .and(console::routes())
            .and(act::routes())
            .and(look::routes()),
    )
    .own(look::Look::default())
}

#[cfg(test)]
mod tests;
