// Plotly's script, which the hive serves from the installed package: loaded once, when it is needed.

let loading = null;

/** Return plotly, which is loaded at the first call. Rejects where the hive has none. */
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const path = document.querySelector('meta[name="plotly"]').content;
    if (!path) {
      reject(new Error('the hive has no plotly: install it with pip install "arkml[hive]"'));
      return;
    }
    const script = document.createElement("script");
    script.src = path;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null; // a later chart tries again
      reject(new Error("the script of plotly cannot be loaded"));
    };
    document.head.append(script);
  });
  return loading;
}
