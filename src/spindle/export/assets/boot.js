// Runs before the first paint: says that scripts work and applies the remembered theme.
document.documentElement.classList.add('js');
try {
  const theme = localStorage.getItem('spindle-theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch { /* a page opened from disk may have no storage */ }
