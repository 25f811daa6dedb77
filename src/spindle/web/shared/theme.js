// Runs before the first paint, so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem('spindle-theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  /* no storage: the system decides */
}
