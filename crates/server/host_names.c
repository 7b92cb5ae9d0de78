/* Makes a static program look host names up in /etc/hosts and by DNS only, whatever /etc/nsswitch.conf says. For anything
   else there (`myhostname`, `resolve`, `mdns4_minimal`), glibc would load a module of the system and with it the
   system's C library, and the process dies where that is of another version than the one in the program. */
int __nss_configure_lookup(const char *database, const char *services);

__attribute__((constructor)) static void look_up_without_modules(void) {
  __nss_configure_lookup("hosts", "files dns");
}
