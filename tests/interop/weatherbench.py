"""The field's scores of forecasts as xarray computes them, and as the packages of WeatherBench do where they are installed.

Fields are datasets of the channels (time, latitude, longitude) at the same valid times; `climatology` has the dims of
WeatherBench 2: hour, dayofyear, latitude, longitude. What is returned is {score: {channel: value}} of the mean over time.
"""
import numpy
import xarray

POINTS = ["time", "latitude", "longitude"]


def at_times(climatology, times):
    return climatology.sel(dayofyear=times.dt.dayofyear, hour=times.dt.hour)


def by_channel(data):
    return {str(name): values.values for name, values in data.items()}


def areas(latitude):
    """Of the cells of rows from pole to pole, up to a factor."""
    north = latitude.sortby(latitude)
    between = (north.values[1:] + north.values[:-1]) / 2
    sines = numpy.sin(numpy.radians(numpy.concatenate([[-90.0], between, [90.0]])))
    return north.copy(data=numpy.diff(sines)).sel(latitude=latitude)


def by_xarray(forecast, truth, start, climatology):
    expected = at_times(climatology, forecast.time)
    mean = lambda fields: fields.weighted(areas(fields.latitude)).mean(POINTS)
    f, y, p = forecast - expected, truth - expected, start - expected
    power = lambda fields: mean_power(fields, areas(fields.latitude))
    return {"bias": by_channel(mean(forecast - truth)), "rmse": by_channel(mean((forecast - truth)**2)**0.5),
            "acc": by_channel(mean(f * y) / (mean(f**2) * mean(y**2))**0.5), "activity": by_channel(mean(f**2)**0.5),
            "climatology_rmse": by_channel(mean(y**2)**0.5), "persistence_rmse": by_channel(mean((start - truth)**2)**0.5),
            "persistence_acc": by_channel(mean(p * y) / (mean(p**2) * mean(y**2))**0.5),
            "spectrum": power(forecast), "truth_spectrum": power(truth)}


def mean_power(fields, weights):
    """Of each wavenumber along the rows; all together are the mean of the squares."""
    def transform(rows):
        power = numpy.abs(numpy.fft.rfft(rows, norm="forward"))**2
        power[..., 1:(rows.shape[-1] + 1) // 2] *= 2
        return power
    power = xarray.apply_ufunc(transform, fields, input_core_dims=[["longitude"]], output_core_dims=[["wavenumber"]])
    return by_channel(power.weighted(weights).mean(["time", "latitude"]))


def by_weatherbench_x(forecast, truth, start, climatology):
    """WeatherBench-X: sums over all points and times before roots and ratios."""
    from weatherbenchX import aggregation, weighting
    from weatherbenchX.metrics import deterministic
    aggregator = aggregation.Aggregator(reduce_dims=["valid_time", "latitude", "longitude"], weigh_by=[weighting.GridAreaWeighting()])

    def metrics(fields, **of_names):
        fields, right = (dict(data.rename(time="valid_time")) for data in (fields, truth))
        values = aggregation.compute_metric_values_for_single_chunk(of_names, aggregator, fields, right)
        return {name: {channel: values[f"{name}.{channel}"].values for channel in fields} for name in of_names}

    acc, activity = deterministic.ACC(climatology), deterministic.PredictionActivity(climatology)
    return {**metrics(forecast, bias=deterministic.Bias(), rmse=deterministic.RMSE(), acc=acc, activity=activity),
            **metrics(start, persistence_rmse=deterministic.RMSE(), persistence_acc=acc),
            **metrics(at_times(climatology, truth.time), climatology_rmse=deterministic.RMSE())}


def by_weatherbench2(forecast, truth, start, climatology):
    """WeatherBench 2: ACC is the mean of those of each time, so that it is compared of one time alone; spectra are those of circles
    of a length, and have the shortest wave of an even number of points twice."""
    from weatherbench2 import derived_variables, metrics
    forecast, truth, start = (data.sortby("latitude") for data in (forecast, truth, start))
    of = lambda metric, fields: by_channel(metric.compute(fields, truth))
    root = lambda values: {name: value**0.5 for name, value in values.items()}
    scores = {"bias": of(metrics.Bias(), forecast), "rmse": root(of(metrics.MSE(), forecast)),
              "persistence_rmse": root(of(metrics.MSE(), start)),
              "climatology_rmse": root(of(metrics.MSE(), at_times(climatology, truth.time).sortby("latitude")))}
    if forecast.sizes["time"] == 1:
        acc = metrics.ACC(climatology.sortby("latitude"))
        scores.update(acc=of(acc, forecast), persistence_acc=of(acc, start))
    for name, fields in (("spectrum", forecast), ("truth_spectrum", truth)):
        scores[name] = {}
        for channel in fields:
            spectrum = derived_variables.ZonalEnergySpectrum(channel)
            power = spectrum.compute(fields) / spectrum._circumference(fields)
            power = power.weighted(metrics.get_lat_weights(fields)).mean(["time", "latitude"]).values
            power[-1] /= 2 - fields.sizes["longitude"] % 2
            scores[name][str(channel)] = power
    return scores


WAYS = {"xarray": by_xarray, "weatherbenchX": by_weatherbench_x, "weatherbench2": by_weatherbench2}
