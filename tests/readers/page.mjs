// Runs in the browser: the picture of an archive as a data URL, made by ome-zarr.js.
import ZipFileStore from "@zarrita/storage/zip";
import { renderThumbnail } from "ome-zarr.js";

globalThis.picture = (url) =>
  renderThumbnail(url.endsWith(".zip") ? ZipFileStore.fromUrl(url) : url, 1000);
