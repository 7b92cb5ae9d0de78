//! The navigation at the side. Each module declares its pages beside its routes, with a line each; the lists are collected
//! in `console/mod.rs`, and templates iterate over what is here for the page and its viewer.
use serde::Serialize;

/// The part of the console (or the account) that a page belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    App,
    Org,
    Platform,
    Account,
}

impl Area {
    /// The titles of its sections, in order. The first has none.
    fn sections(self) -> &'static [&'static str] {
        match self {
            Self::App => &["", "Build", "Manage"],
            Self::Org | Self::Platform => &["", "Manage"],
            Self::Account => &[""],
        }
    }

    /// The area of a path, and the path that its entries are relative to.
    fn of(path: &str) -> Option<(Self, String)> {
        let mut parts = path.trim_start_matches('/').split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("console"), Some("apps"), Some(id)) => Some((Self::App, format!("/console/apps/{id}"))),
            (Some("console"), Some("orgs"), Some(id)) => Some((Self::Org, format!("/console/orgs/{id}"))),
            (Some("console"), Some("platform" | "outbox" | "mails"), _) => Some((Self::Platform, "/console".into())),
            (Some("account"), ..) => Some((Self::Account, "/account".into())),
            _ => None,
        }
    }
}

/// The viewers that an entry is shown to. This is about clutter: what a page shows is decided by the interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Viewers {
    All,
    /// Owners and admins of the organization.
    Admins,
}

/// An entry of the navigation.
#[derive(Clone, Copy)]
pub struct NavEntry {
    pub area: Area,
    /// One of [`Area::sections`].
    pub section: &'static str,
    pub label: &'static str,
    /// One of `parts/icons.html`.
    pub icon: &'static str,
    /// Relative to `/console/apps/{appId}`, `/console/orgs/{id}`, `/console` or `/account`.
    pub path: &'static str,
    pub viewers: Viewers,
}

impl NavEntry {
    pub const fn new(
        area: Area,
        section: &'static str,
        label: &'static str,
        icon: &'static str,
        path: &'static str,
    ) -> Self {
        Self { area, section, label, icon, path, viewers: Viewers::All }
    }

    pub const fn for_admins(mut self) -> Self {
        self.viewers = Viewers::Admins;
        self
    }
}

#[derive(Serialize)]
pub struct NavSection {
    title: &'static str,
    pub links: Vec<NavLink>,
}

#[derive(Serialize)]
pub struct NavLink {
    pub to: String,
    pub label: &'static str,
    pub icon: &'static str,
    is_current: bool,
}

/// The navigation of the page at `path` for a viewer with this role (nothing where the area has no roles).
pub fn of(path: &str, role: Option<&str>) -> Vec<NavSection> {
    // Pages about one agent, and about the app's own domain, have paths beside those of their entries.
    let path = path.replace("/framework-agents/", "/machines/").replace("/agents/", "/machines/");
    let path = if path.ends_with("/domain") { format!("{path}s") } else { path };
    let path = path.as_str();
    let Some((area, root)) = Area::of(path) else { return vec![] };
    let is_seen = |entry: &&NavEntry| {
        entry.area == area && (entry.viewers == Viewers::All || matches!(role, Some("owner" | "admin")))
    };
    let entries: Vec<_> = super::NAV.iter().flat_map(|list| list.iter()).filter(is_seen).collect();
    let to = |entry: &NavEntry| format!("{root}{}", entry.path);
    // The longest entry that the path begins with: a page below another one belongs to that.
    let leads_here = |to: &str| path == to || path.strip_prefix(to).is_some_and(|rest| rest.starts_with('/'));
    let longest = entries.iter().map(|entry| to(entry)).filter(|to| leads_here(to)).max_by_key(String::len);
    let link = |entry: &NavEntry| NavLink {
        to: to(entry),
        label: entry.label,
        icon: entry.icon,
        is_current: longest.as_deref() == Some(&to(entry)),
    };
    let section = |title: &&'static str| NavSection {
        title,
        links: entries.iter().filter(|entry| entry.section == *title).map(|entry| link(entry)).collect(),
    };
    area.sections().iter().map(section).filter(|section| !section.links.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(path: &str) -> Vec<&'static str> {
        let links = of(path, Some("owner")).into_iter().flat_map(|section| section.links);
        links.filter(|link| link.is_current).map(|link| link.label).collect()
    }

    #[test]
    fn a_page_below_another_belongs_to_it() {
        assert_eq!(current("/console/apps/1/webhooks/2"), ["Webhooks"]);
        assert_eq!(current("/console/apps/1/webhooks-of-others"), ["Overview"]);
        assert_eq!(current("/console/apps/1/domain"), ["Domains"]);
        assert_eq!(current("/console/orgs/1/framework-agents/2"), ["Agents"]);
        assert_eq!(current("/account/security"), ["Security"]);
        assert_eq!(current("/console/outbox/3"), ["Outbox"]);
        assert!(of("/console", None).is_empty());
    }

    #[test]
    fn every_entry_has_a_section_of_its_area() {
        for entry in crate::console::NAV.iter().flat_map(|list| list.iter()) {
            assert!(entry.area.sections().contains(&entry.section), "{}", entry.label);
        }
    }

    #[test]
    fn members_do_not_see_what_is_for_admins() {
        let all = |role| of("/console/orgs/1", role).into_iter().flat_map(|section| section.links).count();
        assert!(all(Some("member")) < all(Some("admin")));
    }
}
