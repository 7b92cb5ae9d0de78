//! HTML pages: sign-in, consent, devices, sign-out, the account, the console, the status, the documents
//! and the API reference. They call the API and render its answers. Every page works without JavaScript.
mod account;
mod act;
mod activity;
mod authorize;
mod began;
mod brand;
mod captcha;
mod charts;
mod check_email;
mod console;
mod device;
mod docs;
mod elsewhere;
mod first_owner;
mod form;
mod home;
mod look;
mod marketplace;
mod me;
mod money;
mod multipart;
mod notices;
mod onward;
mod outcome;
mod page;
mod picture;
mod recover;
mod reference;
mod sandbox;
mod sign_in;
mod sign_out;
mod sign_up;
mod status;
mod verify;
mod waiting;
mod words;

use kernel::{
    config::Config,
    feature::{Feature, Part},
    http::{ErrorPage, Routes},
};
use site::status::StatusPage;
use tenancy::plain_page::DrawsPlainPages;

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    Feature::new(
        Routes::new("pages")
            .and(sign_in::routes())
            .and(sign_up::routes())
            .and(verify::routes())
            .and(check_email::routes())
            .and(home::routes())
            .and(recover::routes())
            .and(elsewhere::routes())
            .and(authorize::routes())
            .and(sign_out::routes())
            .and(device::routes())
            .and(brand::routes())
            .and(reference::routes())
            .and(docs::routes())
            .and(first_owner::routes())
            .and(account::routes())
            .and(console::routes())
            .and(sandbox::routes())
            .and(marketplace::routes())
            .and(act::routes())
            .and(picture::routes())
            .and(look::routes()),
    )
    .declares(&[ErrorPage(page::error_page)])
    .declares(&[DrawsPlainPages(page::plain_page)])
    .declares(&[outcome::OUTCOME])
    .own(look::Look::default())
    .own(reference::RenderedPages::default())
    .own(docs::Documentation::default())
    .own(StatusPage(status::status_page))
}

#[cfg(test)]
mod tests;
