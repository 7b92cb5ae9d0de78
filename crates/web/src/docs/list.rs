//! The documents that the site shows, and in which order: guides first, reference second.
use serde::Serialize;

/// One document, as it stands in the source.
#[derive(Serialize)]
pub struct Entry {
    /// Its page: `/docs/{page}`.
    pub page: &'static str,
    /// Its file, from the top of the repository.
    #[serde(skip)]
    pub file: &'static str,
    /// How navigation calls it.
    pub name: &'static str,
    /// What it is about, in one phrase.
    pub about: &'static str,
    #[serde(skip)]
    pub markdown: &'static str,
}

#[derive(Serialize)]
pub struct Section {
    pub title: &'static str,
    pub entries: &'static [Entry],
}

macro_rules! entry {
    ($page:literal, $file:literal, $name:literal, $about:literal) => {
        Entry {
            page: $page,
            file: $file,
            name: $name,
            about: $about,
            markdown: include_str!(concat!("../../../../", $file)),
        }
    };
}

pub const SECTIONS: &[Section] = &[
    Section {
        title: "Users and sign-in",
        entries: &[
            entry!(
                "users",
                "docs/users.md",
                "Users and organizations",
                "Accounts, sessions, organizations, apps and end users, with curl"
            ),
            entry!(
                "oauth",
                "docs/oauth.md",
                "OAuth and OpenID",
                "Sign users in from your app, protect your API, connect devices"
            ),
            entry!(
                "providers",
                "docs/providers.md",
                "Sign-in providers",
                "Google, GitHub, Apple, Microsoft and others"
            ),
            entry!("scim", "docs/scim.md", "SCIM", "Members managed by a company's directory"),
        ],
    },
    Section {
        title: "Build an app",
        entries: &[
            entry!("clients", "docs/clients.md", "Client packages", "TypeScript, Python and Rust"),
            entry!(
                "cli",
                "docs/cli.md",
                "Command line",
                "Sign in, deploy, receive webhooks on your machine, a server for tests"
            ),
            entry!(
                "webhooks",
                "docs/webhooks.md",
                "Webhooks",
                "Events, signatures, retries, and code that verifies deliveries"
            ),
            entry!("email", "docs/email.md", "Email", "Sending domains, templates, bounces"),
            entry!(
                "storage",
                "docs/storage.md",
                "Storage",
                "Files of your users: uploads, downloads, resumable uploads"
            ),
            entry!("usage", "docs/usage.md", "Plans and usage", "Quotas, tracking usage and reading it"),
            entry!("billing", "docs/billing.md", "Billing", "Checkout, invoices, the sandbox, Stripe"),
            entry!("connect", "docs/connect.md", "Merchants", "Payments to merchants of your app"),
            entry!("insights", "docs/insights.md", "Insights", "Analytics, funnels, traces, health of the platform"),
        ],
    },
    Section {
        title: "Host a site",
        entries: &[
            entry!("sites", "docs/sites.md", "Sites", "Deploy a folder, roll back, redirects, headers, previews"),
            entry!(
                "codehost",
                "docs/codehost.md",
                "Deploy from GitHub",
                "Push and it is live, previews, CI without a secret"
            ),
            entry!("domains", "docs/domains.md", "Domains", "Proof by DNS, certificates, TLS, buying a domain"),
        ],
    },
    Section {
        title: "Agents",
        entries: &[
            entry!("agents", "docs/agents.md", "Agents", "Wallets, secrets, delegation, limits, the kill switch"),
            entry!("mcp", "docs/mcp.md", "MCP servers", "Protect them, prove their domain, the registry"),
            entry!("skills", "docs/skills.md", "Skills", "Publish, trust and install skills"),
        ],
    },
    Section {
        title: "Run Janua",
        entries: &[
            entry!("deploy", "docs/deploy.md", "Deploy", "systemd, container image, compose, Caddy and nginx"),
            entry!(
                "operate",
                "docs/operate.md",
                "Operate",
                "Settings, backups, PostgreSQL, several nodes, logs, metrics, upgrades"
            ),
        ],
    },
    Section {
        title: "Reference",
        entries: &[
            entry!("errors", "docs/errors.md", "Errors", "Every error code and what to do about it"),
            entry!("pages", "docs/pages.md", "Pages", "The pages of the server, with pictures"),
            entry!("security", "SECURITY.md", "Security", "What the server promises, and how to report a weakness"),
            entry!("performance", "docs/performance.md", "Performance", "How fast it is, and how that is measured"),
            entry!("scale", "docs/scale.md", "Scale", "What ten million and a billion users need, by a model"),
            entry!("faults", "docs/faults.md", "Fault tests", "Kills, full disks, lost networks"),
            entry!("changelog", "CHANGELOG.md", "Changelog", "What changed"),
        ],
    },
];

/// All documents, in order.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    SECTIONS.iter().flat_map(|section| section.entries)
}

pub fn find(page: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.page == page)
}

/// The document that a file of the repository is shown as.
pub fn of_file(file: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.file == file)
}
