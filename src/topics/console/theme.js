// A classic script in the head: it sets the chosen theme before the first paint.
(() => {
  try {
    const theme = localStorage.getItem("topics.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage can be blocked; then the theme of the system is used.
  }
})();
